/** Page of one file: read the documents in the file, and show them. */

import { at } from "./dom.js";
import { firstOfGood, sentenceList } from "./sentence_list.js";
import { showSentence } from "./sentence_view.js";
import { started } from "./started.js";
import { showTabs } from "./tabs.js";
import { themeSwitch } from "./theme.js";

async function start() {
  const run = JSON.parse(at("run").textContent);
  let redraw = () => {};
  let wanted = 0;
  const list = sentenceList(run, async (number) => {
    wanted = number;
    history.replaceState(null, "", `#${number}`);
    const sentence = await unpacked(at(`sentence-${number}`).textContent);
    if (number === wanted) redraw = showSentence(run, sentence, at("sentence")); // unless another was chosen meanwhile
    document.documentElement.dataset.shown = wanted;
  });
  at("browser").replaceChildren(list.node);
  showTabs(run);
  themeSwitch(at("theme"), () => redraw());
  const first = location.hash.length > 1 ? Number(location.hash.slice(1)) : firstOfGood(run);
  if (run.sentences.length) list.select(first < run.sentences.length ? first : 0);
}

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(plain).json();
}

started(start);
