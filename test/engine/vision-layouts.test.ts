/** Families that see as others than transformers lay them out: the same pixels, features and answers. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { Engine } from '../../src/engine/engine.js';
import type { LogEntry } from '../../src/engine/types.js';
import { parseModelConfig } from '../../src/models/families.js';
import { type DeviceSpec, kernelDevices } from '../devices/devices.js';
import { casesOf, checkAnswer, checkTower, messagesOf, ROOT, readJson } from './vision-fixtures.js';
import { LAYOUTS, layOut } from './vision-layouts.js';

const NAMES = Object.keys(LAYOUTS);

let scratch: string;
beforeAll(() => {
  scratch = mkdtempSync(join(tmpdir(), 'kvant-vision-layouts-'));
  for (const name of NAMES) layOut(join(scratch, name), LAYOUTS[name]!);
});
afterAll(() => rmSync(scratch, { recursive: true }));

describe.each(kernelDevices)('towers in other layouts on $name', (spec: DeviceSpec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  // How a tensor lies is the same to all devices.
  const some = NAMES.filter((name) => !spec.slow || !name.startsWith('mlx-') || name === 'mlx-glm4v');
  it.each(some)('%s gives the pixels and the features of the reference', async (name) => {
    await checkTower(spec, device, join(scratch, name), casesOf(LAYOUTS[name]!.of));
  });
});

const options = { device: 'cpu', worker: false, threads: 2, maxRows: 4, precision: 'reference' } as const;

/** What is odd about a checkpoint. */
async function warningsOf(folder: string): Promise<LogEntry[]> {
  const logs: LogEntry[] = [];
  await using _ = await Engine.load(folder, { ...options, onLog: (entry) => logs.push(entry) });
  return logs.filter(({ level }) => level === 'warn');
}

it.each(NAMES)('%s answers as the reference', async (name) => {
  const { of } = LAYOUTS[name]!;
  await using engine = await Engine.load(join(scratch, name), options);
  for (const one of casesOf(of)) await checkAnswer(engine, one);
  // No more than of the fixture itself.
  expect(await warningsOf(join(scratch, name))).toEqual(await warningsOf(join(ROOT, of)));
});

it.each([
  ['ps_version', 'v1'],
  ['pad2square', true],
  ['force_image_size', 32],
  ['downsample_ratio', 0.4],
  ['select_layer', 9],
  ['max_dynamic_patch', 0],
  ['min_dynamic_patch', 5],
  ['vision.qk_normalization', true],
  ['vision.norm_type', 'rms_norm'],
])('internvl-chat: %s of %j is refused', (field, value) => {
  const config = readJson(join(scratch, 'internvl-chat'), 'config.json');
  const [section, name] = field.startsWith('vision.')
    ? [config.vision_config as Record<string, unknown>, field.slice(7)]
    : [config, field];
  section[name] = value;
  const code = expect.stringMatching(/^model-config(-unsupported)?$/);
  const where = name === 'min_dynamic_patch' ? 'max_dynamic_patch' : name;
  expect(() => parseModelConfig(config)).toThrow(expect.objectContaining({ code, where }));
});

it('internvl-chat: pictures are refused where the tokenizer has no token for them', async () => {
  const folder = join(scratch, 'no-token');
  layOut(folder, LAYOUTS['internvl-chat']!);
  const file = join(folder, 'tokenizer.json');
  writeFileSync(file, readFileSync(file, 'utf8').replaceAll('<IMG_CONTEXT>', '<IMG_OTHER>'));
  const logs: LogEntry[] = [];
  await using engine = await Engine.load(folder, {
    device: 'cpu',
    worker: false,
    threads: 1,
    onLog: (entry) => logs.push(entry),
  });
  expect(logs.map(({ message }) => message)).toContainEqual(
    'pictures are refused: the tokenizer has no token <IMG_CONTEXT>',
  );
  const [one] = casesOf('internvl');
  const asked = async () => engine.chat({ messages: messagesOf(one!) }).result;
  await expect(asked()).rejects.toMatchObject({ code: 'unsupported-content' });
});
