/** A checkpoint with random weights, of the tensors that a config's layout names. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseModelConfig } from '../../src/models/families.js';
import { Random } from '../devices/numbers.js';
import { f32, safetensors, type TestTensor } from '../fixtures/weights/build.js';
import { MODEL_FIXTURES } from '../parity/runner.js';

/** Writes config.json and weights into a folder: the config of a fixture, with other fields. */
export function writeRandomCheckpoint(folder: string, fixture: string, fields: object): void {
  const stated = JSON.parse(readFileSync(join(MODEL_FIXTURES, fixture, 'config.json'), 'utf8'));
  const config = { ...stated, ...fields };
  const random = new Random(7);
  const tensors: Record<string, TestTensor> = {};
  const add = (name: string, shape: readonly number[], scale: number, shift = 0): void => {
    const count = shape.reduce((size, n) => size * n, 1);
    tensors[name] ??= f32(
      shape,
      Float32Array.from({ length: count }, () => scale * random.normal() + shift),
    );
  };
  const { matrices, vectors } = parseModelConfig(config).layout;
  for (const { parts, cols } of matrices)
    for (const { name, rows, bias, pick } of parts) {
      add(name, [pick === undefined ? rows : (rows / pick.take) * pick.of, cols], 1.5 / Math.sqrt(cols));
      if (bias !== null) add(bias, [rows], 0.3);
    }
  for (const { parts } of vectors)
    for (const { name, shape } of parts) add(name, shape, 0.3, /norm|\.D$|scal/.test(name) ? 1 : 0);
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  writeFileSync(join(folder, 'model.safetensors'), safetensors(tensors, { format: 'pt' }));
}
