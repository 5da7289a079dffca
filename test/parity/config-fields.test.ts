/**
 * Each field of each family's config changed once: the logits follow transformers, or the field is refused by its name
 * (scripts/fixtures/config_fields.py).
 */

import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { KvantError } from '../../src/errors.js';
import { loadModel } from '../../src/models/load.js';
import { openModel } from '../../src/models/open.js';
import { everyCase } from '../setup/every-case.js';
import {
  type FieldCase,
  generatedFamilies,
  generatedFixture,
  generatedWeights,
  type Json,
  layersOf,
  type Shapes,
} from './generated.js';
import { createReferenceDevice } from './reference-device.js';
import { Runner } from './runner.js';

/** Of the logits' size. */
const BOUND = 2e-4;

/** What a family refuses by name, beside what others do. Everything else is computed. */
const REFUSED: Readonly<Record<string, readonly string[]>> = {
  apertus: ['mlp_bias=true', 'qk_norm=false', 'post_norm=true'],
  gemma2: ['use_bidirectional_attention=true'],
  gemma3: ['attn_logit_softcapping=1.0', 'use_bidirectional_attention=true'],
  'granite4-h': ['hidden_act="gelu"', 'mamba_proj_bias=true'],
  falcon_h1: ['hidden_act="gelu"', 'mamba_proj_bias=true', 'projectors_bias=true'],
  nemotron_h: ['use_bias=true', 'attention_bias=true', 'mlp_hidden_act="silu"', 'mamba_hidden_act="gelu"'],
  'qwen3.5': ['hidden_act="gelu"', 'attention_bias=true'],
  'qwen3.5_moe': ['hidden_act="gelu"'],
  qwen3_next: ['hidden_act="gelu"'],
  ernie4_5_moe: ['use_bias=true'],
  'gemma4-shared': ['hidden_activation="silu"'],
  deepseek_v2: ['v_head_dim=12', 'attention_bias=true'],
  deepseek_v3: ['v_head_dim=12', 'attention_bias=true'],
  glm4_moe_lite: ['v_head_dim=12', 'attention_bias=true'],
  mistral4: ['v_head_dim=12', 'attention_bias=true'],
  'qwen3-vl': ['hidden_size=40'],
  hunyuan: ['use_qk_norm=false', 'use_cla=true'],
  olmo2: ['clip_qkv=0.5'],
  olmo3: ['rope_theta of 4', 'rope_local_base_freq'],
};

/** Activations that no family has, and what a config has to say. */
const REFUSED_BY_ALL =
  /^hidden_act(ivation)?="(mish|quick_gelu|relu6|sigmoid|tanh|xielu)"$|^no (vocab_size|hidden_size|intermediate_size|num_hidden_layers|num_attention_heads)$/;
/** Rotations that some families have, and the others refuse. */
const OF_SOME: readonly (readonly [name: RegExp, families: readonly string[]])[] = [
  [/^partial(_rotary_factor=|$| )/, ['phi3', 'glm', 'glm4', 'nemotron']],
  [/^dynamic-alpha /, ['hunyuan']],
];

function isRefusedElsewhere(name: string, family: string): boolean {
  return (
    REFUSED_BY_ALL.test(name) ||
    OF_SOME.some(([names, families]) => names.test(name) && !families.includes(family))
  );
}

let scratch: string;
beforeAll(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'kvant-config-'));
});
afterAll(() => rm(scratch, { recursive: true }));

/** The logits of a config whose weights stand in the scratch folder. */
async function logitsOf(config: Json, prompt: readonly number[]): Promise<Float32Array> {
  await writeFile(join(scratch, 'config.json'), JSON.stringify(config));
  await using device = createReferenceDevice();
  await using opened = await openModel(scratch);
  const model = await loadModel(opened.source, opened.definition, device);
  await using runner = await Runner.create(device, model, { context: 32, chunk: 32 });
  return (await runner.generate(prompt, 1)).logits[0]!;
}

/** What became of a config: null if the logits are those expected. */
async function outcomeOf(
  config: Json,
  prompt: readonly number[],
  expected: readonly number[],
): Promise<string | null> {
  try {
    const found = await logitsOf(config, prompt);
    const largest = Math.max(...expected.map(Math.abs));
    const difference = Math.max(...expected.map((value, i) => Math.abs(value - found[i]!))) / largest;
    return difference < BOUND ? null : `differs by ${difference.toPrecision(2)}`;
  } catch (error) {
    if (error instanceof KvantError) return `${error.code}: ${error.where}`;
    throw error;
  }
}

function changed(config: Json, { set, remove = [] }: FieldCase): Json {
  if (config.text_config !== undefined)
    return { ...config, text_config: changed(config.text_config as Json, { set, remove }) };
  const kept = Object.entries(config).filter(([name]) => !remove.includes(name));
  return { ...Object.fromEntries(kept), ...set };
}

function shapesOf(base: Shapes, { shapes = {} }: FieldCase): Shapes {
  return Object.fromEntries(
    Object.entries({ ...base, ...shapes }).flatMap(([name, shape]) =>
      shape === null ? [] : [[name, shape]],
    ),
  );
}

/** True if the error names a field that the case changed. */
function isRefusedByName(outcome: string, { set, remove = [] }: FieldCase): boolean {
  const [, code, where] = /^([\w-]+): (\w+)$/.exec(outcome) ?? [];
  const names = [JSON.stringify(set), ...remove.map((name) => `"${name}"`)].join();
  // What sees makes rows of the decoder's width.
  if (where === 'out_hidden_size') return names.includes('"hidden_size"');
  return code?.startsWith('model-config') === true && names.includes(`"${where}"`);
}

/** In a run that is not to try all of them a family tries one in three, and which ones differs by family. */
const SHARE = everyCase ? 1 : 3;

async function outcomes(family: string): Promise<Json> {
  const { config, shapes, prompt, logits, cases } = generatedFixture(family);
  const refused: string[] = [];
  const wrong: Record<string, string> = {};
  let written = '';
  for (const [index, [name, one]] of Object.entries(cases).entries()) {
    if (!isTried(family, index)) continue;
    const found = shapesOf(shapes, one);
    const made = changed(config, one);
    const layers = layersOf(made) ?? layersOf(config)!;
    const key = JSON.stringify([found, layers]);
    if (key !== written) await writeFile(join(scratch, 'model.safetensors'), generatedWeights(found, layers));
    written = key;
    const outcome = await outcomeOf(made, prompt, one.logits ?? logits);
    if (outcome === null) continue;
    if (!isRefusedByName(outcome, one)) wrong[name] = outcome;
    else if (!isRefusedElsewhere(name, family)) refused.push(name);
  }
  return { refused, wrong };
}

function isTried(family: string, index: number): boolean {
  return (index + generatedFamilies.indexOf(family)) % SHARE === 0;
}

describe('fields of config.json', () => {
  it.each(generatedFamilies)('%s', async (family) => {
    const names = Object.keys(generatedFixture(family).cases);
    const refused = (REFUSED[family] ?? []).filter((name) => isTried(family, names.indexOf(name)));
    expect(await outcomes(family)).toEqual({ refused, wrong: {} });
  });
});
