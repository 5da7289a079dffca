// What a device draws for rows that are held to something, where none computes: ids that masks allow, after a time.
import { FEATURE } from '../dist/device/sampling.js';
import { StepResult } from '../dist/device/step-result.js';

/** In the place of a program's results. `forwardMs`: of a forward pass; `sampleMs`: of a draw. */
export function constrainedDraws({ vocab, forwardMs, sampleMs = 0.1 }) {
  let busyUntil = 0;
  let seed = 1;
  const masks = new Map();
  const below = (n) => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return Math.floor((seed / 2 ** 32) * n);
  };
  /** Of the first word behind a random one that has any. */
  const allowed = (mask) => {
    for (
      let at = below(mask.length), i = 0;
      i <= mask.length;
      i++, at = at + 1 === mask.length ? 0 : at + 1
    ) {
      if (mask[at] === 0) continue;
      const bits = [...Array(32).keys()].filter((bit) => (mask[at] >>> bit) & 1);
      return at * 32 + bits[below(bits.length)];
    }
    throw new Error('a mask of nothing');
  };
  const busy = (ms) => {
    busyUntil = Math.max(busyUntil, performance.now()) + ms;
    return busyUntil;
  };
  const until = (end, value) =>
    new Promise((resolve) => {
      const look = () => (performance.now() >= end ? resolve(value) : setImmediate(look));
      look();
    });
  const draw = ({ outputCount, outputSlot, sampling }) => {
    const ids = new Uint32Array(outputCount);
    for (let row = 0; row < outputCount; row++) {
      const features = sampling.features[row];
      ids[row] =
        (features & FEATURE.FORCED) !== 0
          ? sampling.forced[row]
          : (features & FEATURE.MASK) !== 0
            ? allowed(masks.get(outputSlot[row]))
            : 300 + below(vocab - 800);
    }
    return new StepResult(ids, outputCount);
  };
  const drawn = (result, inputs) => {
    const end = busy(sampleMs);
    const value = draw(inputs);
    return result.then(() => until(end, value));
  };
  return {
    setMask: (slot, mask) => void masks.set(slot, mask),
    submit(result, inputs) {
      busy(forwardMs);
      return drawn(result, inputs);
    },
    forward() {
      busy(forwardMs);
    },
    sample: drawn,
  };
}
