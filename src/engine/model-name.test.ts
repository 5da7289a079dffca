import { basename, join } from 'node:path';
import { expect, it } from 'vitest';
import { modelName } from './model-name.js';

it.each([
  ['models/demo-text', 'demo-text'],
  ['models/demo-text/', 'demo-text'],
  ['./models//demo-text/.', 'demo-text'],
  ['/srv/secret/models/demo-text', 'demo-text'],
  ['demo-text', 'demo-text'],
  ['.', basename(process.cwd())],
  ['./', basename(process.cwd())],
  ['..', basename(join(process.cwd(), '..')) || 'model'],
  ['models/..', basename(process.cwd())],
  ['/', 'model'],
  ['/home/me/.cache/huggingface/hub/models--Qwen--Qwen3-0.6B/snapshots/0123456789abcdef', 'Qwen/Qwen3-0.6B'],
  ['/cache/models--Qwen--Qwen3-0.6B/snapshots/0123456789abcdef/', 'Qwen/Qwen3-0.6B'],
  ['/cache/models--gpt2/snapshots/0123456789abcdef', 'gpt2'],
])('a folder %s is %s', (folder, name) => {
  expect(modelName(folder, folder)).toBe(name);
});

it('a hub model has its own name, whatever its revision and wherever it is kept', () => {
  const folder = '/cache/models--org--name.v1/snapshots/0123456789abcdef0123456789abcdef01234567';
  for (const argument of ['org/name.v1', 'org/name.v1@main'])
    expect(modelName(argument, folder)).toBe('org/name.v1');
});
