/** Context as a heat map of answer probability, with bars at starts and ends. */

import { element, rounded } from "./dom.js";

/** Draw the context of a question. */
export function answerText(look, context) {
  const { begins, ends, start, end, within } = look.tokens;
  const parts = [];
  let at = 0;
  begins.forEach((begin, place) => {
    if (ends[place] <= begin) return;
    parts.push(context.slice(at, begin));
    const [first, last, inside] = [start[place], end[place], within[place]];
    const told = `start ${rounded(first)}, end ${rounded(last)}, inside ${rounded(inside)}`;
    parts.push(element("span", {
      class: "context-token",
      title: told,
      "data-within": inside,
      style: `--start:${first};--end:${last};--within:${inside}`,
    }, context.slice(begin, ends[place])));
    at = ends[place];
  });
  parts.push(context.slice(at));
  const key = element("p", { class: "legend" }, element("span", { class: "key start" }, "answer start"), element("span", { class: "key end" }, "answer end"), " darker: more likely inside an answer");
  return element("div", {}, element("p", { class: "context" }, parts), key);
}

/** Draw the best answers, and the probability of no answer. */
export function answerList(look) {
  const rows = [...look.answers.map((one) => [one.text, one.probability]), ["(no answer)", look.no_answer]];
  return element("ol", { class: "answers" }, rows.map(([text, chance]) =>
    element("li", {}, element("span", { class: "bar", "aria-hidden": "true" }, element("span", { class: "share source", style: `width:${100 * chance}%` })), `${text} `, element("b", {}, rounded(chance)))));
}
