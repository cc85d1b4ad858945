/**
 * Where documents come from: this file, or, where it holds none, the server that gave the page.
 * A server answers GET report/run and GET report/sentence/N with the same documents as JSON.
 */

/** The run's document. */
export async function runDocument() {
  const own = document.getElementById("run");
  return own ? JSON.parse(own.textContent) : asked("report/run");
}

/** The document of a sentence, by its number in the run's. */
export async function sentenceDocument(number) {
  const own = document.getElementById(`sentence-${number}`);
  return own ? unpacked(own.textContent) : asked(`report/sentence/${number}`);
}

async function asked(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${answer.statusText}`);
  return answer.json();
}

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(plain).json();
}
