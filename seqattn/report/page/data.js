/** The documents that this file holds. */

/** The run's document. */
export function runDocument() {
  return JSON.parse(document.getElementById("run").textContent);
}

/** The document of a sentence, by its number in the run's. */
export async function sentenceDocument(number) {
  return unpacked(document.getElementById(`sentence-${number}`).textContent);
}

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(plain).json();
}
