// Runs in the head, before anything is painted, so that a dark page never flashes white.
try {
  const theme = localStorage.getItem("remask-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be forbidden; the system's choice of colours then stands.
}
