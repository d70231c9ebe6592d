// What the reader has chosen lives in the address after "#", so reloading and sharing keep it.

const state = {
  params: new URLSearchParams(location.hash.slice(1)),

  get(name, fallback = null) {
    return this.params.get(name) ?? fallback;
  },

  all(name) {
    return this.params.getAll(name);
  },

  // Values are texts, lists of texts, or null to forget. Only what should be undone by the back
  // button makes a new entry of the history.
  change(changes, { newEntry = false } = {}) {
    for (const [name, value] of Object.entries(changes)) {
      this.params.delete(name);
      if (value === null || value === "") continue;
      for (const item of [value].flat()) this.params.append(name, item);
    }
    const text = this.params.toString();
    const address = location.href.split("#")[0] + (text ? `#${text}` : "");
    if (newEntry) history.pushState({ opened: true }, "", address);
    else history.replaceState(history.state, "", address);
  },

  reread() {
    this.params = new URLSearchParams(location.hash.slice(1));
  },
};

// A folded part that is open stays so; its id is what is remembered.
function rememberOpen(details) {
  details.open = state.all("open").includes(details.id);
  details.addEventListener("toggle", () => {
    const others = state.all("open").filter((id) => id !== details.id);
    state.change({ open: details.open ? [...others, details.id] : others });
  });
  return details;
}
