// Text to pieces, as sentencepiece does it, and back.
const [PAD, UNK, BOS, EOS] = [0, 1, 2, 3];
const RESERVED = 4;
const SPACE = "▁";
const UNKNOWN_PENALTY = 10; // below the least likely piece
const ESCAPED = { "▁": "\u{10fffc}", "▅": "\u{10fffd}" };

class Vocabulary {
  constructor({ algorithm, prefix, pieces, scores }) {
    Object.assign(this, { algorithm, prefix, pieces });
    this.ids = new Map(pieces.map((name, id) => [name, id]).slice(RESERVED));
    this.scores = new Map(pieces.map((name, id) => [name, scores[id]]).slice(RESERVED));
    this.longest = Math.max(...pieces.map((name) => [...name].length));
    this.unknown = Math.min(...this.scores.values()) - UNKNOWN_PENALTY;
  }

  // The pieces of a text with their ids; neighbours that are unknown are one piece.
  segment(text) {
    if (!text) return [];
    const plain = text.replace(/[▁▅]/g, (sign) => ESCAPED[sign]);
    const letters = [...(this.prefix ? SPACE : "") + plain.replaceAll(" ", SPACE)];
    const names = this.algorithm === "bpe" ? this.merge(letters) : this.likeliest(letters);
    const tokens = [];
    for (const name of names) {
      const id = this.ids.get(name) ?? UNK;
      const last = tokens.at(-1);
      if (id === UNK && last?.id === UNK) last.name += name;
      else tokens.push({ id, name });
    }
    return tokens;
  }

  // Byte-pair encoding: again and again, join the pair of the best score.
  merge(parts) {
    for (;;) {
      let [best, place] = [-Infinity, -1];
      for (let n = 0; n + 1 < parts.length; n++) {
        const score = this.scores.get(parts[n] + parts[n + 1]);
        if (score > best) [best, place] = [score, n];
      }
      if (place < 0) return parts;
      parts.splice(place, 2, parts[place] + parts[place + 1]);
    }
  }

  // Unigram model: the segmentation with the largest sum of scores, in float32 as there.
  likeliest(letters) {
    const best = [{ score: 0 }];
    for (let start = 0; start < letters.length; start++) {
      let name = "";
      for (let end = start + 1; end <= Math.min(start + this.longest, letters.length); end++) {
        name += letters[end - 1];
        const own = this.scores.get(name) ?? (end === start + 1 ? this.unknown : undefined);
        if (own === undefined) continue;
        const score = Math.fround(best[start].score + own);
        if (!best[end] || score > best[end].score) best[end] = { score, name, start };
      }
    }
    const names = [];
    for (let at = letters.length; at > 0; at = best[at].start) names.unshift(best[at].name);
    return names;
  }

  text(ids) {
    const said = ids.filter((id) => id === UNK || id >= RESERVED);
    const names = said.map((id) => (id === UNK ? "⁇" : this.pieces[id]));
    return names.join("").replaceAll(SPACE, " ").replace(/^ /, "");
  }
}

const wordsOf = (text) => text.match(/[\p{L}\p{N}](?:\S*[\p{L}\p{N}])?/gu) ?? [];
