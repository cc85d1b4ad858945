/** Light or dark: as the system has it, until somebody chooses. */

import { isDark } from "./colours.js";

/** Makes a button switch; `changed` is called after each change, the system's own included. */
export function themeSwitch(button, changed) {
  const settle = () => {
    button.textContent = isDark() ? "light" : "dark";
    changed();
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    settle();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", settle);
  settle();
}
