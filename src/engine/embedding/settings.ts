/**
 * What a checkpoint says of the embeddings that it makes, as sentence-transformers writes it: `modules.json` lists the steps behind the
 * model, each with a folder of its own; `config_sentence_transformers.json` has the prompts.
 */

import { join } from 'node:path';
import { KvantError } from '../../errors.js';
import { parseLenientJson } from '../../lenient-json.js';
import { Checkpoint } from '../../weights/checkpoint.js';
import { type JsonObject, readOptionalJsonFile, readOptionalTextFile } from '../../weights/folder-files.js';
import { GgufFile } from '../../weights/gguf.js';
import { isGgufFile } from '../../weights/gguf-path.js';
import type { Pooling } from '../pooling.js';
import { DENSE_ACTIVATIONS, type DenseLayer } from './vectors.js';

export interface EmbeddingSettings {
  readonly pooling: Pooling;
  /** What the pooled hidden state goes through, in order. */
  readonly dense: readonly DenseLayer[];
  /** Embeddings have the length 1. */
  readonly normalize: boolean;
  /** Most tokens of a text; null: what the model has. */
  readonly maxTokens: number | null;
  /** By name, what is put before a text. */
  readonly prompts: Readonly<Record<string, string>>;
  readonly defaultPrompt: string | null;
  /** The sizes that embeddings may be cut to, where config.json lists them. */
  readonly dimensions: readonly number[] | null;
}

interface Module {
  /** `Pooling`, without what it stands in. */
  readonly kind: string;
  readonly path: string;
}

/**
 * Null for a model that says nothing of embeddings: it writes text.
 * @throws KvantError `embedding-config`, `embedding-unsupported`, naming file and field; those of readOptionalJsonFile and Checkpoint
 * @example (await readEmbeddingSettings('Qwen3-Embedding-0.6B'))?.pooling // 'last'
 */
export async function readEmbeddingSettings(folder: string): Promise<EmbeddingSettings | null> {
  if (await isGgufFile(folder)) return await ofGguf(folder);
  const modules = await readModules(folder);
  if (modules === null) return null;
  const [first, ...behind] = modules;
  if (first?.kind !== 'Transformer')
    throw odd(folder, 'modules.json', `it begins with ${first?.kind ?? 'nothing'}, not with a Transformer`);
  if (first.path !== '')
    throw unsupported(
      folder,
      'modules.json',
      `a model in a folder of its own, ${JSON.stringify(first.path)}`,
    );
  let pooling: Pooling | null = null;
  let normalize = false;
  const dense: DenseLayer[] = [];
  for (const { kind, path } of behind) {
    if (kind === 'Pooling' && pooling === null) pooling = await readPooling(folder, path);
    else if (kind === 'Dense' && pooling !== null && !normalize) dense.push(await readDense(folder, path));
    else if (kind === 'Normalize' && pooling !== null) normalize = true;
    else throw unsupported(folder, 'modules.json', `the module ${kind} in this place`);
  }
  if (pooling === null) throw odd(folder, 'modules.json', 'it names no Pooling');
  const [sentence = {}, bert = {}, config = {}] = await Promise.all(
    ['config_sentence_transformers.json', 'sentence_bert_config.json', 'config.json'].map((name) =>
      readOptionalJsonFile(folder, name),
    ),
  );
  return {
    pooling,
    dense,
    normalize,
    maxTokens: maxTokensOf(folder, bert),
    ...promptsOf(folder, sentence),
    dimensions: dimensionsOf(config),
  };
}

/** `pooling_type` of GGUF files, 0 for none. A ranking head (4) gives no vector. */
const POOLING_TYPES: readonly (Pooling | null)[] = [null, 'mean', 'cls', 'last', null];

/** A GGUF file says how to pool, and nothing of prompts, sizes and norms. */
async function ofGguf(path: string): Promise<EmbeddingSettings | null> {
  await using file = await GgufFile.open(path);
  const key = `${file.metadata.text('general.architecture')}.pooling_type`;
  const type = file.metadata.count(key, 0) ?? 0;
  if (type >= POOLING_TYPES.length) throw file.metadata.odd(key, 'a number below 5');
  const pooling = POOLING_TYPES[type] ?? null;
  if (pooling === null) return null;
  const dense = [...file.tensors.keys()].some((name) => /^dense_\d+\./.test(name));
  return {
    pooling,
    dense: dense ? await (await import('./gguf-layers.js')).ggufDenseLayers(path) : [],
    normalize: true,
    maxTokens: null,
    prompts: {},
    defaultPrompt: null,
    dimensions: null,
  };
}

/** What `modules.json` lists; null where there is none. */
async function readModules(folder: string): Promise<Module[] | null> {
  const text = await readOptionalTextFile(folder, 'modules.json');
  if (text === undefined) return null;
  let json: unknown;
  try {
    json = parseLenientJson(text);
  } catch (cause) {
    throw odd(folder, 'modules.json', 'it is not JSON', cause);
  }
  if (!Array.isArray(json)) throw odd(folder, 'modules.json', 'it is no list of modules');
  return json.map((entry: unknown) => {
    const { type, path = '' } = (entry ?? {}) as Record<string, unknown>;
    if (typeof type !== 'string' || typeof path !== 'string' || path.split(/[\\/]/).includes('..'))
      throw odd(folder, 'modules.json', 'a module in it has no type and path');
    return { kind: type.slice(type.lastIndexOf('.') + 1), path };
  });
}

/** The modes of sentence-transformers, by the name that files have had for each. */
const MODES: Readonly<Record<string, Pooling>> = {
  cls: 'cls',
  cls_token: 'cls',
  mean: 'mean',
  mean_tokens: 'mean',
  lasttoken: 'last',
};

async function readPooling(folder: string, path: string): Promise<Pooling> {
  const where = join(path, 'config.json');
  const json = await readOptionalJsonFile(folder, where);
  if (json === undefined) throw odd(folder, where, 'there is no such file');
  const stated = json.pooling_mode;
  const flags = Object.keys(json).filter((key) => key.startsWith('pooling_mode_') && json[key] === true);
  const names =
    typeof stated === 'string' ? [stated] : flags.map((flag) => flag.slice('pooling_mode_'.length));
  const [name] = names;
  if (name === undefined) throw odd(folder, where, 'it states no pooling mode');
  if (names.length > 1)
    throw unsupported(folder, where, `several pooling modes at once, ${names.join(', ')}`);
  const pooling = Object.hasOwn(MODES, name) ? MODES[name] : undefined;
  if (pooling === undefined) throw unsupported(folder, where, `the pooling mode ${JSON.stringify(name)}`);
  if (json.include_prompt === false && pooling === 'mean')
    throw unsupported(folder, where, 'a mean that leaves the prompt out (include_prompt)');
  return pooling;
}

async function readDense(folder: string, path: string): Promise<DenseLayer> {
  const where = join(path, 'config.json');
  const json = (await readOptionalJsonFile(folder, where)) ?? {};
  const [cols, rows] = [json.in_features, json.out_features].map((size) => {
    if (Number.isSafeInteger(size) && (size as number) > 0) return size as number;
    throw odd(folder, where, 'in_features or out_features is no size');
  }) as [number, number];
  const stated = typeof json.activation_function === 'string' ? json.activation_function : 'Tanh';
  const name = stated.slice(stated.lastIndexOf('.') + 1);
  const activation = DENSE_ACTIVATIONS.find((one) => one === name.toLowerCase());
  if (activation === undefined) throw unsupported(folder, where, `the activation ${JSON.stringify(name)}`);
  const weights = await Checkpoint.open(join(folder, path));
  try {
    const weight = await weights.vector('linear.weight', [rows, cols]).read();
    const bias = json.bias === false ? null : await weights.vector('linear.bias', [rows]).read();
    return { rows, cols, activation, weight, bias };
  } finally {
    await weights.close();
  }
}

function maxTokensOf(folder: string, { max_seq_length: most = null }: JsonObject): number | null {
  if (most === null || (Number.isSafeInteger(most) && (most as number) > 0)) return most as number | null;
  throw odd(folder, 'sentence_bert_config.json', `max_seq_length is ${JSON.stringify(most)}`);
}

function promptsOf(
  folder: string,
  { prompts, default_prompt_name: name = null }: JsonObject,
): Pick<EmbeddingSettings, 'prompts' | 'defaultPrompt'> {
  const where = 'config_sentence_transformers.json';
  const all = Object.entries((prompts ?? {}) as Record<string, unknown>);
  if (!all.every(([, text]) => typeof text === 'string'))
    throw odd(folder, where, '`prompts` are texts by name');
  const known = Object.fromEntries(all) as Record<string, string>;
  if (name !== null && !(typeof name === 'string' && Object.hasOwn(known, name)))
    throw odd(folder, where, `default_prompt_name is ${JSON.stringify(name)}, which \`prompts\` has not`);
  return { prompts: known, defaultPrompt: name };
}

function dimensionsOf({ matryoshka_dimensions: stated }: JsonObject): readonly number[] | null {
  const sizes = Array.isArray(stated) ? stated.filter((size) => Number.isSafeInteger(size) && size > 0) : [];
  return sizes.length === 0 ? null : sizes;
}

function odd(folder: string, name: string, what: string, cause?: unknown): KvantError {
  return new KvantError('embedding-config', `${join(folder, name)}: ${what}.`, {
    kind: 'model',
    where: join(folder, name),
    fix: 'Fetch the model again, with the folders that modules.json names.',
    ...(cause === undefined ? {} : { cause }),
  });
}

function unsupported(folder: string, name: string, what: string): KvantError {
  return new KvantError('embedding-unsupported', `${join(folder, name)} asks for ${what}; kvant has none.`, {
    kind: 'unsupported',
    where: join(folder, name),
    fix: 'Use a model whose modules are Transformer, Pooling (cls, mean or lasttoken), Dense and Normalize.',
  });
}
