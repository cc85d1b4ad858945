/** Arrays of 16-bit numbers in base64, and the matrices within them. */

const known = new WeakMap();

/** Return the numbers of an array's document, decoded once. */
export function decoded(document) {
  if (!known.has(document)) {
    const text = atob(document.data);
    const bytes = Uint8Array.from(text, (sign) => sign.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    const values = new Float32Array(bytes.length / 2);
    for (let place = 0; place < values.length; place += 1) {
      values[place] = document.low + document.step * view.getUint16(2 * place, true);
    }
    known.set(document, values);
  }
  return known.get(document);
}

/** Return the matrix of an array (T, S). */
export function matrix(document) {
  const [rows, columns] = document.shape;
  return { rows, columns, values: decoded(document) };
}

/** Return one head's matrix of an array (H, T, S); the mean of all heads if `head` is "mean". */
export function headMatrix(document, head) {
  const [heads, rows, columns] = document.shape;
  const values = decoded(document);
  const size = rows * columns;
  if (head !== "mean") {
    const first = Math.min(head, heads - 1) * size;
    return { rows, columns, values: values.subarray(first, first + size) };
  }
  const mean = new Float32Array(size);
  for (let place = 0; place < values.length; place += 1) mean[place % size] += values[place] / heads;
  return { rows, columns, values: mean };
}

/** Return the largest absolute number. */
export function largest(values) {
  return values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
}
