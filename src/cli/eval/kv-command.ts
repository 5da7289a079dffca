/** `kvant eval kv`: what each format of the KV cache costs in quality, against float KV. */
import { join } from 'node:path';
import type { Command } from 'commander';
import type { EngineOptions } from '../../engine/types.js';
import { KvantError } from '../../errors.js';
import { addEngineFlags, type EngineFlags, engineOptions, integer } from '../flags.js';
import { checkOutputs, writeOutput } from '../output.js';
import { ProgressBar } from '../progress.js';
import { versions } from '../versions.js';
import type { EvalFormat } from './kv-formats.js';
import type { QuestionSet, SetScore } from './kv-questions.js';
import type { EvalKvReport, TextsInfo } from './kv-report.js';
import type { ScoredText } from './kv-texts.js';

interface EvalKvFlags extends EngineFlags {
  readonly formats?: string;
  readonly baseline: string;
  readonly text: readonly string[];
  readonly set: readonly string[];
  readonly limit?: number;
  readonly maxPrompt?: number;
  readonly cut: boolean;
  readonly questions: boolean;
  readonly out?: string;
  readonly plots?: string;
  readonly json?: boolean;
}

export function addEvalKvCommand(evalCommand: Command): void {
  const command = evalCommand
    .command('kv <model>')
    .summary('judge the formats of the KV cache against float')
    .description(
      'Judges formats of the KV cache against float KV. Teacher-forced over texts and reference answers: perplexity, ' +
        'KL of the next-token distributions, top-1 agreement. Over question sets: right answers lost and won. All of it ' +
        'cold and again with every prompt cut into odd chunks, which must change nothing on the CPU.',
    )
    .option(
      '--formats <list>',
      'formats to judge, such as affine8,affine4-g32,turbo3.5,affine8/turbo4; affine4:all-layers quantises the last ' +
        'layer too (default: all)',
    )
    .option('--baseline <format>', 'what they are judged against', 'f16')
    .option('--text <file...>', 'JSON lines with "text", or with "messages" and "answer"', [])
    .option(
      '--set <file...>',
      'question sets; their reference answers are scored as texts too, but those about pictures',
      [],
    )
    .option('--limit <n>', 'only the first n lines of each file', integer(1))
    .option('--max-prompt <tokens>', 'only lines whose stated "prompt_tokens" are below this', integer(1))
    .option('--no-cut', 'leave out the second pass, with prompts cut into odd chunks')
    .option('--no-questions', 'score the answers of the sets, but do not ask the questions')
    .option('--out <file>', 'write the result as JSON')
    .option('--plots <folder>', 'write SVG: KL against bytes a vector, recall by context length')
    .option('--json', 'print the result as JSON');
  addEngineFlags(command);
  command.addHelpText(
    'after',
    `
Example:
  $ kvant eval kv models/demo-text --formats affine8,affine4,turbo3.5 --text test/fixtures/eval/texts.jsonl.br \\
      --set test/fixtures/eval/eval-* --out kv.json --plots .`,
  );
  command.action(async (model: string, flags: EvalKvFlags) => {
    const report = await evaluate(model, flags);
    await deliver(report, flags);
  });
}

async function evaluate(model: string, flags: EvalKvFlags): Promise<EvalKvReport> {
  if (flags.text.length + flags.set.length === 0)
    throw new KvantError('invalid-flags', 'There is nothing to judge by: neither --text nor --set.', {
      kind: 'invalid-request',
      fix: 'For the demo model: --text test/fixtures/eval/texts.jsonl.br --set test/fixtures/eval/eval-*.',
    });
  const { allFormats, evalFormat, withoutKvOptions } = await import('./kv-formats.js');
  const options = withoutKvOptions(engineOptions(flags));
  const judged = flags.formats === undefined ? allFormats() : flags.formats.split(',').map(evalFormat);
  const formats = [
    evalFormat(flags.baseline),
    ...judged.filter(({ name }) => name !== flags.baseline),
  ] as const satisfies readonly EvalFormat[];

  await checkOutputs(flags);
  const { readQuestions, setName } = await import('./question-sets.js');
  const { limit, maxPrompt } = flags;
  const sets = await Promise.all(
    flags.set.map(async (path) => {
      const questions = (await readQuestions(path)).filter(
        (q) => maxPrompt === undefined || (q.promptTokens ?? 0) < maxPrompt,
      );
      return [setName(path), questions.slice(0, limit)] as const;
    }),
  );

  const [{ readTexts }, { longestOf, scoreCaches }, { OfflineRunner }, { ModelText }, { locatePlace }] =
    await Promise.all([
      import('./kv-texts.js'),
      import('./kv-score.js'),
      import('../../engine/offline-runner.js'),
      import('../../engine/model-text.js'),
      import('../../engine/model-location.js'),
    ]);
  const text = await ModelText.load(await locatePlace(model, options));
  const files = await Promise.all(
    [...new Set([...flags.text, ...flags.set])].map(async (path) => ({
      name: setName(path),
      texts: await readTexts(path, text, setName(path), {
        limit,
        maxPrompt,
        asked: flags.set.includes(path),
      }),
    })),
  );
  const texts = files.flatMap((file) => file.texts);
  if (texts.length === 0 && !flags.questions)
    throw new KvantError(
      'invalid-flags',
      'Nothing is scored: all lines have pictures, which are asked alone.',
      {
        kind: 'invalid-request',
        where: '--no-questions',
        fix: 'Leave out --no-questions, or add --text.',
      },
    );
  const context = longestOf(texts);

  const bar = new ProgressBar();
  try {
    await using bench = await OfflineRunner.open(
      { model },
      options,
      formats.map(({ kv }) => ({ kv, rows: 1, context })),
    );
    const caches = await scoreCaches(bench, formats, texts, flags.cut, (done, total) =>
      bar.update({ label: 'Scoring', done, total, unit: 'tokens' }),
    );
    const { name, kind, precision, deterministic, features } = bench.device.info;
    // The engines that answer come after it: two at once would share the machine's cores.
    await bench[Symbol.asyncDispose]();
    const questions = flags.questions ? await ask(model, options, formats, sets, flags.cut, bar) : [];
    return {
      model: options.name ?? model,
      device: { name, kind, precision, deterministic, features },
      date: new Date().toISOString().slice(0, 10),
      versions: versions(),
      baseline: flags.baseline,
      texts: files.map(textsInfo),
      formats: caches.map((cache, i) => ({ ...cache, questions: questions[i] ?? [] })),
    };
  } finally {
    bar.done();
  }
}

async function ask(
  model: string,
  options: EngineOptions,
  formats: readonly EvalFormat[],
  sets: readonly QuestionSet[],
  cut: boolean,
  bar: ProgressBar,
): Promise<SetScore[][]> {
  if (sets.length === 0) return [];
  const [{ askCaches }, { Engine }] = await Promise.all([
    import('./kv-questions.js'),
    import('../../engine/engine.js'),
  ]);
  return askCaches(
    (all) => Engine.load(model, all),
    options,
    formats,
    sets,
    cut,
    (done, total, item) => bar.update({ label: 'Asking', done, total, unit: 'questions', item }),
  );
}

async function deliver(report: EvalKvReport, flags: EvalKvFlags): Promise<void> {
  const { isIdentical, klPlot, recallPlot, reportTable } = await import('./kv-report.js');
  if (flags.out !== undefined) await writeOutput('--out', flags.out, `${JSON.stringify(report, null, 1)}\n`);
  if (flags.plots !== undefined) {
    const kl = klPlot(report);
    if (kl !== null) await writeOutput('--plots', join(flags.plots, 'kv-kl.svg'), kl);
    const recall = recallPlot(report);
    if (recall !== null) await writeOutput('--plots', join(flags.plots, 'kv-recall.svg'), recall);
  }
  if (flags.json) process.stdout.write(`${JSON.stringify(report)}\n`);
  else process.stdout.write(`${heading(report)}\n${reportTable(report)}`);
  if (report.device.deterministic && !isIdentical(report))
    throw new KvantError('kv-cut-differs', 'Cut into odd chunks, prompts gave other results than whole.', {
      kind: 'internal',
      fix: 'Please report it, with the output of --json: where prompts are cut must not show.',
    });
}

function heading({ model, device, baseline, texts }: EvalKvReport): string {
  const files = texts.map((t) => `${t.name}: ${t.texts} texts, ${t.scored} of ${t.tokens} tokens scored`);
  return `${model} on ${device.name}, precision ${device.precision}, against ${baseline} KV\n${files.join('\n')}\n`;
}

function textsInfo({ name, texts }: { name: string; texts: readonly ScoredText[] }): TextsInfo {
  const sum = (of: (text: ScoredText) => number): number =>
    texts.reduce((total, text) => total + of(text), 0);
  return {
    name,
    texts: texts.length,
    tokens: sum(({ ids }) => ids.length),
    scored: sum(({ ids, from }) => ids.length - from),
  };
}
