/** What is said of an architecture that no family has. */

import { editDistance } from '../did-you-mean.js';
import { KvantError } from '../errors.js';
import type { JsonObject } from '../weights/folder-files.js';

/** What models have that no family can compute, by names they are published under. The first that fits is told. */
const OTHER_KINDS: readonly (readonly [name: RegExp, what: string])[] = [
  [/^(bloom|mpt|jais)/i, 'positions by ALiBi'],
  [/^(gpt2|gptbigcode|gptneofor|opt|xglm|biogpt)/i, 'learned positions'],
  [/^(t5|mt5|umt5|bart|mbart|pegasus|marian|whisper)/i, 'an encoder beside the decoder'],
  [/^(deberta|electra)/i, 'attention by relative positions, or an encoder of another kind'],
  [/^(bert|roberta|xlmroberta|modernbert|nomicbert)/i, 'a head behind an encoder'],
  [/mamba|rwkv|griffin|recurrentgemma|zamba|jamba|bamba|plamo2/i, 'recurrent layers'],
  [/^(deepseek_?v3_?2|glm_?moe_?dsa)/i, 'an indexer that picks what is attended to'],
  [/^deepseek_?v4/i, 'attention that compresses what it keeps'],
  [/^kimi_?(linear|k3)/i, 'linear attention of another kind'],
  [/moe|mixtral|dbrx|arctic|grok|gptoss|minimax|llama4/i, 'experts that are chosen or stored in another way'],
];

/** Fields by which a config says that its positions are ALiBi's. */
function saysAlibi(config: JsonObject): boolean {
  const inner = config.attn_config;
  const nested = typeof inner === 'object' && inner !== null && !Array.isArray(inner) ? inner : {};
  return (
    [config.alibi, config.use_alibi, (nested as JsonObject).alibi].includes(true) ||
    config.position_embedding_type === 'alibi'
  );
}

/**
 * @param name the architecture, or the model type where none is named
 * @param known architectures that can be loaded
 * @returns `model-architecture-unknown`: names what the model has that no family has, if its name tells, and the nearest families
 * @example unknownArchitecture('BloomForCausalLM', 'config.json', {}, knownArchitectures()).message
 */
export function unknownArchitecture(
  name: string,
  where: string,
  config: JsonObject,
  known: readonly string[],
): KvantError {
  const what = saysAlibi(config) ? OTHER_KINDS[0]![1] : OTHER_KINDS.find(([names]) => names.test(name))?.[1];
  const nearest = nearestOf(name, known);
  return new KvantError(
    'model-architecture-unknown',
    `${where}: the architecture ${JSON.stringify(name)} is not known${what === undefined ? '' : `: it has ${what}, which no family of kvant has`}${nearest.length === 0 ? '' : `; the nearest known ones are ${nearest.join(', ')}`}`,
    {
      kind: 'unsupported',
      where: 'architectures',
      fix: `Use a model of one of: ${namesOf(known).join(', ')}.`,
    },
  );
}

/** Without what all end in: the list would be longer than an error may be. */
const namesOf = (known: readonly string[]): string[] => [
  ...new Set(
    known.map((name) =>
      name.replace(/_?For(CausalLM|ConditionalGeneration|MaskedLM|SequenceClassification)$/, ''),
    ),
  ),
];

const NEAREST = 3;
/** A name longer than any is not compared letter by letter. */
const LONGEST = 100;

/** The known names nearest first: by letters that differ and by a beginning in common, endings (`For…`) left out. */
function nearestOf(name: string, known: readonly string[]): string[] {
  if (name.length > LONGEST) return [];
  const stem = (one: string): string => one.replace(/(For|LMHead)[A-Z].*$/, '').toLowerCase();
  const wanted = stem(name);
  return known
    .map((candidate) => ({
      candidate,
      distance: editDistance(wanted, stem(candidate)) - sharedStart(wanted, stem(candidate)),
    }))
    .sort((a, b) => a.distance - b.distance)
    .slice(0, NEAREST)
    .map(({ candidate }) => candidate);
}

function sharedStart(a: string, b: string): number {
  let length = 0;
  while (length < a.length && a[length] === b[length]) length++;
  return length;
}
