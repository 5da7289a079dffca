import { describe, expect, it } from 'vitest';
import type { FeatureSlab } from '../../device/feature-slab.js';
import { KvantError } from '../../errors.js';
import { FeatureStore } from './feature-store.js';
import type { PatchedImage } from './patched-image.js';
import { PromptPictures, SequencePictures } from './pictures.js';

const COLS = 2;

class Slab implements FeatureSlab {
  readonly rows = 10;
  readonly cols = COLS;
  readonly bytes = 0;
  readonly data = new Float32Array(10 * COLS);
  write(first: number, data: Float32Array): void {
    this.data.set(data, first * COLS);
  }
  dispose(): void {}
}

/** Rows of a picture are its number. */
class Encoder {
  readonly seconds = 0;
  launches = 0;
  fails = false;
  async encodeTo(
    images: readonly PatchedImage[],
    slab: FeatureSlab,
    firsts: readonly number[],
  ): Promise<void> {
    this.launches++;
    if (this.fails) throw new KvantError('internal', 'broken');
    for (const [i, { grid, patches }] of images.entries())
      slab.write(firsts[i]!, new Float32Array(grid.rows * grid.cols * COLS).fill(patches[0]!));
  }
}

const picture = (name: number, tokens: number) => ({
  digest: new Uint32Array(8).fill(name),
  grid: { rows: 1, cols: tokens },
  patches: Float32Array.of(name),
  first: 0,
  tokens,
});
const of = (...list: ReturnType<typeof picture>[]): SequencePictures =>
  new SequencePictures(new PromptPictures(list, null));

function acquire(store: FeatureStore, pictures: SequencePictures, salt = ''): Promise<KvantError | null> {
  return new Promise((resolve) => store.acquire(pictures, salt, resolve));
}

describe('FeatureStore', () => {
  it('computes a picture once, whoever asks, and keeps it as long as there is room', async () => {
    const slab = new Slab();
    const encoder = new Encoder();
    const store = new FeatureStore(slab, encoder);
    const [a, b] = [of(picture(1, 4)), of(picture(1, 4), picture(2, 3))];
    await Promise.all([acquire(store, a), acquire(store, b)]);
    expect([a.rows, b.rows]).toEqual([[0], [0, 4]]);
    expect([...slab.data.subarray(0, 14)]).toEqual([1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]);
    expect(store.stats()).toMatchObject({ rowsUsed: 7, encoded: 2, hits: 1 });
    // Salts keep apart.
    const salted = of(picture(2, 3));
    await acquire(store, salted, 'x');
    expect(salted.rows).toEqual([7]);
    for (const one of [a, b, salted]) store.release(one);
    const again = of(picture(1, 4));
    await acquire(store, again);
    expect(store.stats()).toMatchObject({ encoded: 3, hits: 2 });
  });

  it('gives all rows or none, in the order of those who asked', async () => {
    const store = new FeatureStore(new Slab(), new Encoder());
    const first = of(picture(1, 6));
    await acquire(store, first);
    let told = '';
    const second = acquire(store, of(picture(2, 3), picture(3, 3))).then(() => {
      told += '2';
    });
    const third = acquire(store, of(picture(4, 2))).then(() => {
      told += '3';
    });
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect([told, store.stats().rowsUsed]).toEqual(['', 6]);
    store.release(first);
    await Promise.all([second, third]);
    expect(store.stats().rowsUsed).toBe(8);
  });

  it('lets what is kept go where it lies in the way, and nothing that the same request wants', async () => {
    const slab = new Slab();
    const store = new FeatureStore(slab, new Encoder());
    const all = of(picture(1, 2), picture(2, 8));
    await acquire(store, all);
    store.release(all);
    const other = of(picture(3, 2));
    await acquire(store, other);
    store.release(other);
    // The second one is still there.
    const again = of(picture(1, 2), picture(2, 8), picture(2, 8));
    await acquire(store, again);
    expect(again.rows).toEqual([0, 2, 2]);
    expect(store.stats()).toMatchObject({ encoded: 4, rowsUsed: 10 });
    store.release(again);
    // Rows of 2 and 8 in the wrong places for 5 and 5.
    const halves = of(picture(4, 5), picture(5, 5));
    await acquire(store, halves);
    expect([...halves.rows].sort()).toEqual([0, 5]);
    store.release(halves);
    // 4 free rows, in two parts.
    const parts = of(picture(6, 2), picture(7, 3), picture(8, 2), picture(9, 3));
    await acquire(store, parts);
    store.release(parts);
    const wide = of(picture(7, 3), picture(10, 7));
    await acquire(store, wide);
    expect(new Set(wide.rows).size).toBe(2);
  });

  it('has those alone that are asked for, and lets go of them when more are', async () => {
    const store = new FeatureStore(new Slab(), new Encoder());
    const pictures = of(picture(1, 4), picture(2, 3));
    const ask = (from: number) => new Promise((resolve) => store.acquire(pictures, '', resolve, from));
    expect(pictures.isReady(0)).toBe(false);
    await ask(1);
    expect(store.stats()).toMatchObject({ encoded: 1, references: 1 });
    // Both begin with the prompt, and the first one ends behind the second.
    expect([pictures.isReady(0), pictures.isReady(4)]).toEqual([false, true]);
    await ask(0);
    expect(store.stats()).toMatchObject({ encoded: 2, hits: 1, references: 2 });
    expect(pictures.isReady(0)).toBe(true);
    store.release(pictures);
    expect(store.stats()).toMatchObject({ references: 0, entries: 2 });
  });

  it('serves those who wait when what nobody wants any more is computed', async () => {
    const store = new FeatureStore(new Slab(), new Encoder());
    const gone = of(picture(1, 10));
    store.acquire(gone, '', () => {
      throw new Error('it has gone');
    });
    const next = acquire(store, of(picture(2, 10)));
    store.release(gone);
    expect(await next).toBeNull();
  });

  it('tells who waits what failed, and has the rows again', async () => {
    const encoder = new Encoder();
    const store = new FeatureStore(new Slab(), encoder);
    encoder.fails = true;
    const pictures = of(picture(1, 10));
    expect(await acquire(store, pictures)).toMatchObject({ message: 'broken' });
    expect(pictures.ready).toBe(false);
    store.release(pictures);
    encoder.fails = false;
    const next = of(picture(1, 10));
    expect(await acquire(store, next)).toBeNull();
    expect(next.ready).toBe(true);
  });
});
