/** Pieces of words for readers, and the words that they belong to. */

const BEGINS = "▁";
const MARK = /^<.*>$/;

/** Return a piece without the mark of a word's beginning; a continuation starts with a tie. */
export function label(piece, place) {
  if (piece.startsWith(BEGINS)) return piece.slice(1) || "␣";
  return place === 0 || MARK.test(piece) ? piece : `‿${piece}`;
}

/** Return the labels of all pieces. */
export function labels(pieces) {
  return pieces.map(label);
}

const SIGNS = { "‿": "joins the pieces of a word", "␣": "is a space by itself", "<s>": "begins a text", "</s>": "ends a text" };

/** Explain the signs that occur in labels; "" for none. */
export function signsOf(shown) {
  const found = Object.entries(SIGNS).filter(([sign]) => shown.some((one) => (sign === "‿" ? one.startsWith(sign) : one === sign)));
  return found.map(([sign, about]) => `${sign} ${about}`).join("; ");
}

/** Return the index of each piece's word. */
export function wordNumbers(pieces) {
  let word = -1;
  return pieces.map((piece, place) => {
    if (place === 0 || piece.startsWith(BEGINS) || MARK.test(piece)) word += 1;
    return word;
  });
}

/** Return for each item of the first list whether it is in the longest common subsequence of both. */
export function shared(first, second) {
  const lengths = Array.from({ length: first.length + 1 }, () => new Uint16Array(second.length + 1));
  for (let i = first.length - 1; i >= 0; i -= 1) {
    for (let j = second.length - 1; j >= 0; j -= 1) {
      const skipped = Math.max(lengths[i + 1][j], lengths[i][j + 1]);
      lengths[i][j] = first[i] === second[j] ? lengths[i + 1][j + 1] + 1 : skipped;
    }
  }
  const found = first.map(() => false);
  for (let i = 0, j = 0; i < first.length && j < second.length; ) {
    if (first[i] === second[j]) {
      found[i] = true;
      i += 1;
      j += 1;
    } else if (lengths[i + 1][j] >= lengths[i][j + 1]) i += 1;
    else j += 1;
  }
  return found;
}
