/** Light or dark theme: as in the system until the user chooses; light in print. */

import { isDark } from "./colors.js";

/** Make a button switch the theme; `changed` is called after each change, including the system's own. */
export function themeSwitch(button, changed) {
  const root = document.documentElement;
  const settle = () => {
    button.textContent = isDark() ? "light" : "dark";
    changed();
  };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    settle();
  });
  let before;
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
    settle();
  });
  addEventListener("afterprint", () => {
    if (before) root.dataset.theme = before;
    else delete root.dataset.theme;
    settle();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", settle);
  settle();
}
