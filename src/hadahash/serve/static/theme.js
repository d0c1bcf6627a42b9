// The light and the dark theme, remembered by the browser.

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  localStorage.setItem("theme", name);
}

// `redraw` is called when the colors change.
export function installTheme(button, redraw) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  button.addEventListener("click", () => {
    const current = document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light");
    setTheme(current === "dark" ? "light" : "dark");
    redraw();
  });
  if (localStorage.getItem("theme")) setTheme(localStorage.getItem("theme"));
  dark.addEventListener("change", redraw);
}
