/** Light or dark: as the system has it, until somebody chooses; on paper light. */

import { isDark } from "./colours.js";

/** Makes a button switch; `changed` is called after each change, the system's own included. */
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
