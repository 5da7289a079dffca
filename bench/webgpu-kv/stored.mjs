// A side of the cache filled with hashed words, and the vectors that the host reads from them.

import { built } from '../options.mjs';
import { arenaWord, f16, fillHashed } from '../webgpu-harness.mjs';
import { bench, count } from './context.mjs';

const { codeNumbers } = await built('device/webgpu/kernels/plane-codes.js');
const { codesInRuns, isTransposed } = await built('device/webgpu/kernels/kv-formats/list.js');
const { kvLayout, kvTables } = await built('device/webgpu/kernels/kv-layout.js');
const { turboCodebook } = await built('device/turboquant/codebooks.js');
const { turboRotation, unrotate } = await built('device/turboquant/rotation.js');

/** What a word of a side is, from its hash: codes as they come, floats and scales and norms in a sane range. */
export function masks(format) {
  if (format.kind === 'float')
    return {
      and: format.dtype === 'f16' ? 0x83ff83ff : 0x807fffff,
      or: format.dtype === 'f16' ? 0x38003800 : 0x3f000000,
    };
  if (format.kind === 'affine')
    // scale in [1, 2) · 2^-bits, bias in (-1, -1/2]
    return { and: 0x03ff03ff, or: (0xb8000000 | ((15 - format.bits) << 10)) >>> 0 };
  return { and: 0x03ff03ff, or: 0x48004800 };
}

export class Side {
  constructor(which, format, place, seed) {
    Object.assign(this, { which, format, place, seed });
    this.layout = kvLayout(format, place);
    const { and, or } = masks(format);
    Object.assign(this, { and, or });
    this.buffer = bench.buffer(this.layout.bytes);
    const words = Math.ceil(this.layout.bytes / 4);
    const from = format.kind === 'float' ? 0 : this.layout.metaAt;
    fillHashed(bench, this.buffer, words, { seed, and, or, from });
    const tables = kvTables(format, place.headDim, which);
    if (tables.length > 0) bench.device.queue.writeBuffer(this.buffer, this.layout.tablesAt * 4, tables);
  }

  word(i) {
    const h = arenaWord(i, this.seed);
    return this.format.kind === 'float' || i >= this.layout.metaAt ? ((h & this.and) | this.or) >>> 0 : h;
  }

  /** Codes of the vector that is `row` among all, from the layout as it is documented. */
  #codes(row) {
    const { format, place, layout } = this;
    const { headDim } = place;
    const first = row * layout.words;
    if (isTransposed({ name: this.which === 'value' ? 'values' : 'keys', format, headDim })) {
      const numbers = codeNumbers(headDim, format.bits, this.which);
      // Of 16 vectors: four rows of words, of which each has four of them, a byte each, and two dims in that.
      const own = row % 16;
      const at = (row - own) * layout.words + (own % 4) * (headDim / 2);
      return count(headDim).map((d) =>
        numbers.indexOf((this.word(at + (d >> 1)) >>> ((own >> 2) * 8 + (d & 1) * 4)) & 15),
      );
    }
    if (codesInRuns(format)) {
      const { bits } = format;
      const numbers = codeNumbers(headDim, bits, this.which);
      return count(headDim).map((d) => {
        const length = Math.min(32, headDim - (d & ~31));
        let number = 0;
        for (let b = 0; b < bits; b++) {
          const field = (d & 3) * 8 + ((d >> 2) & 1) * 4;
          const word = (d & 31) >> 3;
          const run = (d >> 5) * 96;
          const inField = word < 3 ? run + word * 32 + field + b : run + b * 32 + field + 3;
          const at =
            bits === 3 ? inField : (d & ~31) * bits + b * length + (d & 3) * (length / 4) + ((d & 31) >> 2);
          number |= ((this.word(first + (at >> 5)) >>> (at & 31)) & 1) << b;
        }
        return numbers.indexOf(number);
      });
    }
    const { bits } = format;
    if (bits === 3) {
      return count(headDim).map((d) => {
        const base = first + Math.floor(d / 32) * 3;
        const pair = (d % 32) >> 1;
        const six =
          pair < 15
            ? (this.word(base + Math.floor(pair / 5)) >>> ((pair % 5) * 6)) & 63
            : count(3).reduce((s, j) => s | ((this.word(base + j) >>> 30) << (2 * j)), 0);
        return (six >> (3 * (d & 1))) & 7;
      });
    }
    return count(headDim).map((d) => {
      let code = 0;
      for (let b = 0; b < bits; b++) {
        const at = d * bits + b;
        code |= ((this.word(first + (at >> 5)) >>> (at & 31)) & 1) << b;
      }
      return code;
    });
  }

  /** A stored vector as attention reads it. */
  vector(block, kv, t) {
    const { format, layout, place } = this;
    const { headDim, kvHeads, blockTokens } = place;
    const row = (block * kvHeads + kv) * blockTokens + t;
    const first = row * layout.words;
    if (format.kind === 'float') {
      const bits = new Uint32Array(1);
      return Float64Array.from(count(headDim), (d) => {
        if (format.dtype === 'f16') return f16(this.word(first + (d >> 1)) >>> (d & 1 ? 16 : 0));
        bits[0] = this.word(first + d);
        return new Float32Array(bits.buffer)[0];
      });
    }
    const codes = this.#codes(row);
    if (format.kind === 'affine') {
      return Float64Array.from(codes, (c, d) => {
        const w = this.word(layout.metaAt + row * layout.groups + Math.floor(d / format.groupSize));
        return c * f16(w) + f16(w >>> 16);
      });
    }
    const w = this.word(layout.metaAt + (block * layout.metaHeads + (kv >> 1)) * blockTokens + t);
    const norm = f16(kv & 1 ? w >>> 16 : w);
    const { centroids } = turboCodebook(headDim, format.bits, this.which);
    return unrotate(
      turboRotation(headDim, this.which),
      Float64Array.from(codes, (c) => centroids[c] * norm),
    );
  }
}
