/** Puts the page together. */

import { runDocument, sentenceDocument } from "./data.js";
import { sentenceList } from "./sentence_list.js";
import { showSentence } from "./sentence_view.js";
import { started } from "./started.js";
import { showTabs } from "./tabs.js";
import { themeSwitch } from "./theme.js";

const at = (id) => document.getElementById(id);

async function start() {
  const run = runDocument();
  let redraw = () => {};
  let wanted = 0;
  const list = sentenceList(run, async (number) => {
    wanted = number;
    history.replaceState(null, "", `#${number}`);
    const sentence = await sentenceDocument(number);
    if (number === wanted) redraw = showSentence(run, sentence, at("sentence")); // another may have been chosen meanwhile
    document.documentElement.dataset.shown = wanted;
  });
  at("browser").replaceChildren(list.node);
  showTabs(run);
  themeSwitch(at("theme"), () => redraw());
  const first = Number(location.hash.slice(1));
  if (run.sentences.length) list.select(first < run.sentences.length ? first : 0);
}

started(start);
