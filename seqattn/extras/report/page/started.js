/** Begins, and says on the page why it cannot. */

import { at, element } from "./dom.js";

/** Calls `start`, which gives a promise. */
export function started(start) {
  start().catch((error) => {
    at("sentence").replaceChildren(element("p", { class: "note reason", role: "alert" }, `this page cannot be shown: ${error.message}`));
    throw error;
  });
}
