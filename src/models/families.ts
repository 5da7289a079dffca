/** The registry: finds the family of a config.json. */

import type { KvantError } from '../errors.js';
import type { JsonObject } from '../weights/folder-files.js';
import { statedArchitecture } from './config.js';
import { ConfigFields } from './config-fields.js';
import { apertus } from './families/apertus.js';
import { arcee } from './families/arcee.js';
import { bert, roberta } from './families/bert.js';
import { cohere } from './families/cohere.js';
import { cohere2 } from './families/cohere2.js';
import { deepseekV2, deepseekV3, glm4MoeLite } from './families/deepseek.js';
import { ernie45 } from './families/ernie4-5.js';
import { ernie45Moe } from './families/ernie4-5-moe.js';
import { exaone4 } from './families/exaone4.js';
import { falconH1 } from './families/falcon-h1.js';
import { gemma2 } from './families/gemma2.js';
import { gemma3 } from './families/gemma3.js';
import { gemma4, gemma4Unified } from './families/gemma4.js';
import { glm, glm4, glm4vText, glmOcrText } from './families/glm4.js';
import { glm4Moe } from './families/glm4-moe.js';
import { gptOss } from './families/gpt-oss.js';
import { granite } from './families/granite.js';
import { graniteMoe } from './families/granite-moe.js';
import { granite4 } from './families/granite4.js';
import { hunyuan } from './families/hunyuan.js';
import { hunyuanMoe } from './families/hunyuan-moe.js';
import { hy3 } from './families/hy3.js';
import { internLm, internLm3 } from './families/internlm.js';
import { lfm2, lfm2Moe } from './families/lfm2.js';
import { llama } from './families/llama.js';
import { minimaxM2 } from './families/minimax-m2.js';
import { ministral3 } from './families/ministral3.js';
import { mistral } from './families/mistral.js';
import { mistral4 } from './families/mistral4.js';
import { mixtral } from './families/mixtral.js';
import { modernBert } from './families/modernbert.js';
import { museGlimmer } from './families/muse-glimmer.js';
import { nemotron } from './families/nemotron.js';
import { nemotronH } from './families/nemotron-h.js';
import { nomicBert } from './families/nomic-bert.js';
import { olmo2 } from './families/olmo2.js';
import { olmo3 } from './families/olmo3.js';
import { phi3 } from './families/phi3.js';
import { qwen2Moe, qwen3Moe } from './families/qwen-moe.js';
import { qwen2 } from './families/qwen2.js';
import { qwen3 } from './families/qwen3.js';
import { qwen35, qwen35Moe } from './families/qwen3-5.js';
import { qwen3Next } from './families/qwen3-next.js';
import { seedOss } from './families/seed-oss.js';
import { smolLm3 } from './families/smollm3.js';
import { type ModelDefinition, type RegisteredFamily, register } from './family.js';
import { refuseUnread, withOverrides } from './overrides.js';
import { unknownArchitecture } from './unknown-architecture.js';
import { withVision } from './vision/read-vision.js';
import { unwrap, WRAPPED_ARCHITECTURES } from './wrappers.js';

const FAMILIES: readonly RegisteredFamily[] = [
  register(llama),
  register(mistral),
  register(qwen2),
  register(qwen3),
  register(gemma2),
  register(gemma3),
  register(granite),
  register(smolLm3),
  register(phi3),
  register(seedOss),
  register(exaone4),
  register(glm4),
  register(glm),
  register(glm4vText),
  register(glmOcrText),
  register(ernie45),
  register(olmo2),
  register(olmo3),
  register(apertus),
  register(arcee),
  register(cohere),
  register(cohere2),
  register(nemotron),
  register(granite4),
  register(graniteMoe),
  register(museGlimmer),
  register(hunyuan),
  register(ministral3),
  register(internLm),
  register(internLm3),
  register(qwen3Moe),
  register(qwen2Moe),
  register(mixtral),
  register(glm4Moe),
  register(minimaxM2),
  register(ernie45Moe),
  register(hunyuanMoe),
  register(hy3),
  register(lfm2),
  register(qwen35),
  register(lfm2Moe),
  register(qwen35Moe),
  register(qwen3Next),
  register(gptOss),
  register(gemma4),
  register(gemma4Unified),
  register(falconH1),
  register(nemotronH),
  register(mistral4),
  register(deepseekV2),
  register(deepseekV3),
  register(glm4MoeLite),
  register(bert),
  register(roberta),
  register(modernBert),
  register(nomicBert),
];

/** Names of all architectures that can be loaded, sorted. */
export function knownArchitectures(): string[] {
  return [
    ...new Set([...FAMILIES.flatMap((family) => family.architectures), ...WRAPPED_ARCHITECTURES]),
  ].sort();
}

/**
 * Reads a parsed config.json.
 *
 * @param where names the file in errors
 * @param families those that are known; all of kvant if omitted
 * @param overrides fields that replace those of the file
 * @throws KvantError `model-architecture-unknown`, naming the nearest ones known; `model-config`,
 * `model-config-unsupported`
 * @example parseModelConfig(JSON.parse(await readFile('config.json', 'utf8'))).facts.layers
 */
export function parseModelConfig(
  json: JsonObject,
  where = 'config.json',
  families: readonly RegisteredFamily[] = FAMILIES,
  overrides: JsonObject = {},
): ModelDefinition {
  const fields = new ConfigFields(withOverrides(json, overrides), where);
  const definition = readDefinition(fields, families);
  refuseUnread(fields, overrides);
  return definition;
}

function readDefinition(fields: ConfigFields, families: readonly RegisteredFamily[]): ModelDefinition {
  const { architecture, modelType } = statedArchitecture(fields);
  const wrapped = unwrap(fields, architecture, modelType);
  if (wrapped !== null) {
    const inside = byModelType(wrapped.modelType, families);
    if (inside === undefined) throw unknown(wrapped.modelType, wrapped.fields);
    const decoder = inside.read(wrapped.fields, architecture ?? (modelType as string));
    if (wrapped.tower !== null) {
      const seeing = withVision(decoder, fields, wrapped.tower);
      if (seeing.vision !== null) return seeing;
    }
    fields.notice('the model takes in more than text; its text model alone is used', {
      architecture: architecture ?? modelType,
    });
    return decoder;
  }
  // As transformers does it: the type decides, whatever the class was called that wrote the weights.
  const named = architecture === null ? undefined : byArchitecture(architecture, families);
  const byType = byModelType(modelType, families);
  const family = named === undefined && hasOtherHead(architecture) ? undefined : (byType ?? named);
  if (family === undefined) throw unknown(architecture ?? (modelType as string), fields);
  if (architecture !== null && named !== family)
    fields.notice('config.json names another architecture than its model type, which is read', {
      architecture,
      modelType,
    });
  return family.read(fields, architecture ?? family.architectures[0] ?? (modelType as string));
}

/** A classifier, a reward model and the like: without a head it would be read as a model that writes. */
function hasOtherHead(architecture: string | null): boolean {
  return /For(?!CausalLM$)[A-Z]\w*$/.test(architecture ?? '');
}

function byArchitecture(name: string, families: readonly RegisteredFamily[]): RegisteredFamily | undefined {
  const wanted = name.toLowerCase();
  return families.find((family) => family.architectures.some((known) => known.toLowerCase() === wanted));
}

function byModelType(
  name: string | null,
  families: readonly RegisteredFamily[],
): RegisteredFamily | undefined {
  return families.find((family) => family.modelTypes.some((known) => known === name));
}

function unknown(name: string, { where, json }: ConfigFields): KvantError {
  return unknownArchitecture(name, where, json, knownArchitectures());
}
