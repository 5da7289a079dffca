// Random weights of large models, quickly: codes are windows into one block of noise that is made once, scales are those of the source.

const NOISE_BYTES = 64 * 2 ** 20;

let noise = null;
function noiseBytes() {
  if (noise !== null) return noise;
  const words = new Uint32Array(NOISE_BYTES / 4);
  let state = 0x9e3779b9;
  for (let i = 0; i < words.length; i++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    words[i] = state;
  }
  noise = new Uint8Array(words.buffer);
  return noise;
}

function hash(text) {
  let value = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 0x01000193) >>> 0;
  return value;
}

/** The source, whose affine matrices give rows without copying any. Each tensor and row begins elsewhere in the noise. */
export function quickly(source) {
  const bytes = noiseBytes();
  const metas = new Map();
  return {
    has: (name) => source.has(name),
    vector: (name, shape) => source.vector(name, shape),
    info: (name) => source.info(name),
    unusedNames: () => source.unusedNames(),
    matrix(name, size) {
      const inner = source.matrix(name, size);
      const { rows, cols, format } = inner;
      if (format.kind !== 'affine') return inner;
      const row = (cols * format.bits) / 8;
      const start = hash(name);
      return {
        name,
        rows,
        cols,
        format,
        async readRows(from, to) {
          const length = (to - from) * row;
          // A prime of words between the starts of neighbouring pieces.
          const at = 4 * ((start + from * 7919) % ((bytes.length - length) / 4));
          const key = `${cols} ${format.bits} ${format.groupSize} ${format.dtype} ${to - from}`;
          if (!metas.has(key)) {
            const { scales, biases } = await inner.readRows(from, to);
            metas.set(key, { scales, biases });
          }
          return { data: bytes.subarray(at, at + length), ...metas.get(key) };
        },
      };
    },
  };
}
