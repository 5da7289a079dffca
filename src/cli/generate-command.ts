/** `kvant generate`: one answer to one prompt or conversation. */
import type { Command } from 'commander';
import type { Engine } from '../engine/engine.js';
import type { EngineChatMessage, EngineOptions, Generation } from '../engine/types.js';
import { hasPictures } from '../engine/vision/picture-parts.js';
import { KvantError } from '../errors.js';
import type { SamplingOptions } from '../sampling/options.js';
import { EXAMPLE_MODEL } from './example-model.js';
import { EXIT } from './exit.js';
import {
  addEngineFlags,
  type CliLogLevel,
  type EngineFlags,
  engineOptions,
  integer,
  logLevelFlag,
  TOOL_FORMAT,
} from './flags.js';
import { parseLosslessJson, readConversation, readText, readTools } from './input.js';
import { untilInterrupted } from './interrupt.js';
import { inFileNames, type NamedPicture, readPicture, withPictures } from './picture-files.js';
import { formatBytes } from './progress.js';
import { addSamplingFlags, type SamplingFlags, samplingOptions } from './sampling-flags.js';

interface GenerateFlags extends EngineFlags, SamplingFlags {
  readonly prompt?: string;
  readonly promptFile?: string;
  readonly messages?: string;
  readonly image?: readonly string[];
  readonly system?: string;
  readonly tools?: string;
  readonly toolFormat?: string;
  readonly raw?: boolean;
  readonly thinking?: boolean;
  readonly templateOptions?: string;
  readonly ignoreEos?: boolean;
  readonly bestOf?: number;
  readonly logprobs?: number;
  readonly json?: boolean;
  readonly quiet?: boolean;
  readonly logLevel: CliLogLevel;
}

export function addGenerateCommand(program: Command): void {
  const command = program
    .command('generate <model>')
    .description(
      'Answers one prompt or conversation and streams the answer to standard output. Applies the model’s chat template where it has one.',
    )
    .option('-p, --prompt <text>', 'the prompt; - reads standard input')
    .option('--prompt-file <file>', 'read the prompt from a file')
    .option(
      '-m, --messages <file>',
      'a conversation: JSON list of messages, or an object with messages and perhaps tools; - reads standard input',
    )
    .option('--image <file...>', 'pictures before the prompt, for a model that sees')
    .option('--system <text>', 'a system message before the prompt')
    .option('--tools <file>', 'JSON list of tools for the chat template')
    .option('--tool-format <name>', TOOL_FORMAT)
    .option('--raw', 'no chat template: continue the prompt as it stands')
    .option('--no-thinking', 'pass enable_thinking=false to the chat template')
    .option('--template-options <json>', 'further variables of the chat template, as a JSON object')
    .option('--ignore-eos', 'go on after the end of the answer, to --max-tokens')
    .option('--best-of <n>', 'draw n answers and print the likeliest', integer(1, 128))
    .option(
      '--logprobs <n>',
      'with --json: log-probabilities, and n alternatives for each token',
      integer(0, 20),
    )
    .option('--quiet', 'no line of rates on stderr behind the answer')
    .option(
      '--json',
      'print {text, reasoning, toolCalls, tokenIds, finishReason, usage, timings, memory} as JSON',
    )
    .addOption(logLevelFlag('warn'));
  addSamplingFlags(command);
  addEngineFlags(command);
  command.addHelpText(
    'after',
    `
Examples:
  $ kvant generate ${EXAMPLE_MODEL} --prompt "What is the capital of Japan?"
  $ kvant generate Qwen/Qwen3-0.6B --quantize 4 --prompt "Tell me a story." --temperature 0.7 --seed 1
  $ kvant generate ${EXAMPLE_MODEL} --messages chat.json --temperature 0 --json
  $ kvant generate models/demo-vision --image photo.png --prompt "What is in the picture?"
  $ echo "Once upon a time" | kvant generate ${EXAMPLE_MODEL} --raw --prompt -`,
  );
  // Refused below, with what they were meant for.
  command.allowExcessArguments();
  command.action(async (model: string, flags: GenerateFlags) => {
    refuseBareText(command.args.slice(1));
    await generate(model, flags);
  });
}

/** `kvant generate MODEL "Hello"`, as other tools have it. */
function refuseBareText(words: readonly string[]): void {
  if (words.length === 0) return;
  const text = words.join(' ');
  const short = text.length > 60 ? `${text.slice(0, 57)}...` : text;
  throw new KvantError('invalid-flags', `There is text behind the model: ${JSON.stringify(short)}.`, {
    kind: 'invalid-request',
    where: '--prompt',
    fix: `Give it with --prompt: --prompt ${JSON.stringify(short)}.`,
  });
}

async function generate(model: string, flags: GenerateFlags): Promise<void> {
  if (flags.logprobs !== undefined && !flags.json)
    throw new KvantError('invalid-flags', '--logprobs is for --json.', {
      kind: 'invalid-request',
      where: '--logprobs',
      fix: 'Add --json.',
    });
  const { toolFormat } = flags;
  const options = { ...engineOptions(flags), ...(toolFormat === undefined ? {} : { toolFormat }) };
  const { start, messages, pictures } = await readRequest(flags);
  const [{ loadEngine }, { quietLog }] = await Promise.all([import('./load.js'), import('./log.js')]);
  await using engine = await loadEngine(model, options, quietLog(flags.logLevel), async (all) => {
    await refuseBeforeLoad(model, flags, all);
    if (!hasPictures(messages)) return;
    const { checkSight } = await import('../engine/vision/sees.js');
    await checkSight(model, messages, all).catch((error) => {
      throw inFileNames(error, pictures);
    });
  });
  await untilInterrupted(async (signal) => {
    const sampling = {
      ...samplingOptions(flags),
      ...(flags.ignoreEos ? { ignoreEos: true } : {}),
      ...(flags.bestOf === undefined ? {} : { bestOf: flags.bestOf }),
      ...(flags.logprobs === undefined ? {} : { logprobs: true, topLogprobs: flags.logprobs }),
      signal,
    };
    try {
      await print(start(engine, sampling), flags, engine);
    } catch (error) {
      throw inFileNames(error, pictures);
    }
  });
}

async function print(generation: Generation, flags: GenerateFlags, engine: Engine): Promise<void> {
  if (!flags.json) {
    for await (const delta of generation) {
      process.stdout.write(delta.text);
      if (delta.error !== undefined) throw delta.error;
    }
    process.stdout.write('\n');
  }
  const { text, reasoning, toolCalls, tokenIds, finishReason, usage, timings, seed, choices, images } =
    await generation.result;
  if (choices[0]?.error !== undefined) throw choices[0].error;
  const peak = (await engine.stats()).device.peakBytes;
  if (flags.json) {
    const { logprobs } = choices[0] ?? {};
    const parts = {
      ...(reasoning === '' ? {} : { reasoning }),
      ...(toolCalls.length === 0 ? {} : { toolCalls }),
      ...(images === undefined || images.length === 0 ? {} : { images }),
    };
    const memory = { ...engine.info.memory, peak };
    const result = { text, ...parts, tokenIds, finishReason, usage, timings, seed, logprobs, memory };
    process.stdout.write(`${JSON.stringify(result)}\n`);
  } else if (!flags.quiet) {
    const rate = timings.decodeTokensPerSecond.toFixed(1);
    const line = `${usage.promptTokens} + ${usage.completionTokens} tokens, first after ${Math.round(timings.ttftMs)} ms, ${rate} tok/s, ${finishReason}, on ${engine.info.device.name}, ${formatBytes(peak)} at most`;
    process.stderr.write(process.stderr.isTTY ? `\x1b[2m${line}\x1b[22m\n` : `${line}\n`);
  }
  if (finishReason === 'cancelled') process.exitCode = EXIT.interrupted;
}

type Sampling = SamplingOptions & { readonly signal: AbortSignal };

interface ReadRequest {
  readonly start: (engine: Engine, sampling: Sampling) => Generation;
  /** What is asked through a chat template. */
  readonly messages: readonly EngineChatMessage[];
  readonly pictures: readonly NamedPicture[];
}

/** Reads what the flags name before anything is loaded, so that a mistake costs no time. */
async function readRequest(flags: GenerateFlags): Promise<ReadRequest> {
  const given = [flags.prompt, flags.promptFile, flags.messages].filter((v) => v !== undefined);
  if (given.length !== 1) {
    throw new KvantError(
      'invalid-flags',
      given.length === 0 ? 'There is no prompt.' : 'There is more than one prompt.',
      {
        kind: 'invalid-request',
        fix: `Give one of --prompt, --prompt-file and --messages.${flags.image === undefined ? '' : ' All that stands behind --image are files.'}`,
      },
    );
  }
  refuseWithoutTemplate(flags);
  if (flags.image !== undefined && flags.messages !== undefined)
    throw new KvantError('invalid-flags', '--image goes with --prompt, not with --messages.', {
      kind: 'invalid-request',
      where: '--image',
      fix: 'Put the pictures into the messages, as image_url parts with data URLs.',
    });
  const templateOptions = readTemplateOptions(flags);
  // As text all is shown as the model writes it; in JSON thoughts and calls have fields of their own.
  const parts = { parseReasoning: flags.json === true, parseToolCalls: flags.json === true };
  const tools = flags.tools === undefined ? undefined : await readTools(flags.tools);
  if (flags.messages !== undefined) {
    const conversation = await readConversation(flags.messages);
    const all = tools ?? conversation.tools;
    const system = flags.system === undefined ? [] : [{ role: 'system', content: flags.system }];
    const messages = [...system, ...conversation.messages];
    const start: ReadRequest['start'] = (engine, sampling) =>
      engine.chat({
        ...sampling,
        ...parts,
        messages,
        ...(all === undefined ? {} : { tools: all }),
        templateOptions,
      });
    return { start, messages, pictures: [] };
  }
  const prompt =
    flags.promptFile !== undefined
      ? await readText(flags.promptFile)
      : flags.prompt === '-'
        ? await readText('-')
        : (flags.prompt ?? '');
  const pictures = (flags.image ?? []).map(localPicture);
  const system = flags.system === undefined ? [] : [{ role: 'system', content: flags.system }];
  const messages = [...system, { role: 'user', content: withPictures(pictures, prompt) }];
  const start: ReadRequest['start'] = (engine, sampling) => {
    if (flags.raw) return engine.generate({ ...sampling, prompt });
    if (!engine.info.model.hasChatTemplate) {
      refuseWithoutTemplate({ ...flags, raw: true }, NO_TEMPLATE);
      return engine.generate({ ...sampling, prompt });
    }
    return engine.chat({
      ...sampling,
      ...parts,
      messages,
      ...(tools === undefined ? {} : { tools }),
      templateOptions,
    });
  };
  return { start, messages, pictures };
}

const NO_TEMPLATE = 'The model has no chat template';

/** What a model without a chat template will be asked in vain is to be known before its weights are read. */
async function refuseBeforeLoad(model: string, flags: GenerateFlags, options: EngineOptions): Promise<void> {
  if (templateFlag(flags) === undefined) return;
  const { hasChatTemplate } = await import('../engine/has-template.js');
  if (!(await hasChatTemplate(model, options))) refuseWithoutTemplate({ ...flags, raw: true }, NO_TEMPLATE);
}

/** The first flag that says something to the chat template. */
function templateFlag(flags: GenerateFlags): string | undefined {
  const given = {
    '--messages': flags.messages,
    '--image': flags.image,
    '--system': flags.system,
    '--tools': flags.tools,
    '--tool-format': flags.toolFormat,
    '--template-options': flags.templateOptions,
    '--no-thinking': flags.thinking === false ? true : undefined,
  };
  return Object.entries(given).find(([, value]) => value !== undefined)?.[0];
}

/** Such a flag means nothing without one. */
function refuseWithoutTemplate(flags: GenerateFlags, why = '--raw uses no chat template'): void {
  if (!flags.raw) return;
  const name = templateFlag(flags);
  if (name === undefined) return;
  throw new KvantError('invalid-flags', `${why}, which ${name} is for.`, {
    kind: 'invalid-request',
    where: name,
    fix: `Leave ${name} out, and write it into the prompt.`,
  });
}

function readTemplateOptions(flags: GenerateFlags): Record<string, unknown> {
  const given =
    flags.templateOptions === undefined ? {} : parseLosslessJson(flags.templateOptions, '--template-options');
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    throw new KvantError('invalid-flags', '--template-options takes a JSON object.', {
      kind: 'invalid-request',
      fix: 'For example --template-options \'{"enable_thinking": false}\'.',
    });
  }
  return { ...(flags.thinking === false ? { enable_thinking: false } : {}), ...given };
}

/** Nothing is fetched here. Errors: `image-url-not-allowed`, those of {@link readPicture}. */
function localPicture(name: string): NamedPicture {
  if (!/^https?:/i.test(name)) return readPicture(name);
  throw new KvantError('image-url-not-allowed', `${name} is on the network; --image takes files.`, {
    kind: 'invalid-request',
    where: '--image',
    fix: 'Save the picture, and give its file.',
  });
}
