/** Start of the page, with its errors shown on the page. */

import { at, element } from "./dom.js";

/** Call `start`, which returns a promise. */
export function started(start) {
  start().catch((error) => {
    at("sentence").replaceChildren(element("p", { class: "note reason", role: "alert" }, `cannot show this page: ${error.message}`));
    throw error;
  });
}
