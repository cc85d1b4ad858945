/** Page of a server: type, watch tokens arrive, inspect, change the model, see the output change. */

import { asked, streamed } from "./ask.js";
import { changeButtons, isOff, weightField } from "./change_buttons.js";
import { asIntervene, changesNow, forgetTokens, onChange } from "./changes.js";
import { at, element, keepingFocus } from "./dom.js";
import { LiveForm } from "./live_form.js";
import { showSentence } from "./sentence_view.js";
import { started } from "./started.js";
import { showTabs } from "./tabs.js";
import { themeSwitch } from "./theme.js";
import { welcome } from "./welcome.js";

async function start() {
  const live = await asked("v1/page");
  const arriving = element("p", { class: "output arriving", "aria-live": "off", dir: "auto" });
  const form = new LiveForm(live, { send, stop });
  const view = element("div", {}, welcome(live, tried));
  let redraw = () => {};
  let running = null;
  let plain = null; // the document of the unchanged model, with its request

  function tried(example) {
    form.fill(example);
    at("sentence").focus(); // the example's button will be gone
  }

  async function send() {
    stop();
    const own = new AbortController();
    running = own;
    form.busy(true);
    form.tell("sending…");
    const began = performance.now();
    try {
      const request = form.request();
      const key = JSON.stringify(request);
      if (plain?.key !== key) {
        forgetTokens();
        form.showChanges();
        view.replaceChildren();
        plain = { key, isGreedy: form.isGreedy, document: await searched(request, own.signal) };
      }
      const intervene = asIntervene(live.heads);
      const edited = intervene && (await searched({ ...request, intervene }, own.signal));
      show(edited);
      form.tell(`done in ${((performance.now() - began) / 1000).toFixed(1)} s`);
    } catch (error) {
      if (running === own) form.tell(error.name === "AbortError" ? "stopped" : error.message, error.name !== "AbortError");
    } finally {
      if (running === own) {
        form.busy(false);
        arriving.replaceChildren();
      }
    }
  }

  function stop() {
    running?.abort();
  }

  async function searched(request, signal) {
    arriving.replaceChildren();
    return streamed("v1/sentence", request, signal, (name, data) => {
      arriving.textContent = data.text;
      form.tell(request.intervene ? "generating with the changed model…" : "generating…");
    });
  }

  function show(edited) {
    const documents = edited ? [plain.document, edited] : [plain.document];
    const [bundle] = live.run.bundles;
    const named = (name) => ({ ...bundle, name });
    const bundles = edited ? [named("as trained"), named("changed")] : [bundle];
    const tools = documents.map((document) => toolsOf(document.looks[0], document === edited));
    const sentence = { ...plain.document, looks: documents.map((document) => document.looks[0]) };
    keepingFocus(view, () => { redraw = showSentence({ ...live.run, bundles }, sentence, view, tools); });
    const root = document.documentElement;
    root.dataset.shown = Number(root.dataset.shown ?? 0) + 1;
  }

  function toolsOf(look, isEdited) {
    return {
      isOff: (attention, head) => isEdited && isOff(attention, head),
      buttons: () => changeButtons(look, live.heads),
      weight: (view, row, column) => weightField(look, view, row, column, plain.isGreedy),
    };
  }

  onChange(() => {
    form.showChanges();
    if (!plain) return;
    stop();
    if (changesNow().length) send();
    else show(null);
  });
  at("browser").replaceChildren(form.node);
  at("sentence").replaceChildren(arriving, view);
  showTabs(live.run);
  themeSwitch(at("theme"), () => redraw());
  document.documentElement.dataset.ready = "";
  form.text.focus();
}

started(start);
