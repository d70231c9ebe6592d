// Browsers start no worker for a page that was opened from a folder. There, and only there, the script of a worker, that of
// the search, runs in a hidden frame. (The theme would load a script that does this from another host.)
"use strict";
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.ready = new Promise((ready) => {
        frame.addEventListener("load", () => {
          const inside = frame.contentWindow;
          if (inside.posting) return; // loaded before
          inside.posting = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          inside.postMessage = inside.posting;
          const script = inside.document.createElement("script");
          script.src = new URL(address, location.href).href;
          script.addEventListener("load", () => ready(inside));
          inside.document.head.append(script);
        });
      });
      frame.srcdoc = "<!doctype html><title>worker</title>";
      document.body ? document.body.append(frame) : addEventListener("DOMContentLoaded", () => document.body.append(frame));
    }

    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }
  };
}
