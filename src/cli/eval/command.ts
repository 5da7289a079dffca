/** `kvant eval`: how many questions of a set a model answers rightly. */
import type { Command } from 'commander';
import { KvantError } from '../../errors.js';
import { addEngineFlags, type EngineFlags, engineOptions, integer } from '../flags.js';
import { checkOutputs, writeOutput } from '../output.js';
import { ProgressBar } from '../progress.js';
import { addEvalKvCommand } from './kv-command.js';
import type { Question, SetResult } from './question-sets.js';

interface EvalFlags extends EngineFlags {
  readonly set: readonly string[];
  readonly limit?: number;
  readonly maxPrompt?: number;
  readonly out?: string;
  readonly json?: boolean;
}

export function addEvalCommand(program: Command): void {
  const command = program
    .command('eval <model>')
    .description(
      'Asks every question of the sets at temperature 0, batched, and counts right answers beside those of the reference.',
    )
    .option('--set <file...>', 'question sets: JSON lines with "messages" and "answer" or "expected"', [])
    .option('--limit <n>', 'only the first n questions of each set', integer(1))
    .option('--max-prompt <tokens>', 'only questions whose stated "prompt_tokens" are below this', integer(1))
    .option('--out <file>', 'write the result as JSON')
    .option('--json', 'print the result as JSON');
  addEngineFlags(command);
  // `eval kv` has flags of the same names.
  command.enablePositionalOptions();
  addEvalKvCommand(command);
  command.addHelpText('after', '\nExample:\n  $ kvant eval MODEL --set questions.jsonl --out result.json');
  command.action(async (model: string, flags: EvalFlags) => {
    if (flags.set.length === 0)
      throw new KvantError('invalid-flags', 'There is no question set.', {
        kind: 'invalid-request',
        where: '--set',
        fix: 'Give one or more files: --set test/fixtures/eval/eval-*.',
      });
    const options = engineOptions(flags);
    const { askAll, checkSights, readQuestions, setName } = await import('./question-sets.js');
    const sets: [string, Question[]][] = [];
    for (const path of flags.set) {
      const all = (await readQuestions(path)).filter(
        (q) => flags.maxPrompt === undefined || (q.promptTokens ?? 0) < flags.maxPrompt,
      );
      sets.push([setName(path), all.slice(0, flags.limit)]);
    }
    await checkOutputs(flags);
    const { loadEngine } = await import('../load.js');
    await using engine = await loadEngine(model, options, undefined, (all) =>
      checkSights(
        model,
        sets.flatMap(([, questions]) => questions),
        all,
      ),
    );
    const bar = new ProgressBar();
    const results: SetResult[] = [];
    for (const [name, questions] of sets) {
      results.push(
        await askAll(engine, name, questions, (done) =>
          bar.update({ label: name, done, total: questions.length, unit: 'questions' }),
        ),
      );
    }
    bar.done();
    const { info } = engine;
    const report = {
      model: info.name,
      device: info.device.name,
      precision: info.device.precision,
      kv: [...new Set(info.kv.layers.map((l) => `${l.key}/${l.value}`))],
      limits: info.limits,
      date: new Date().toISOString().slice(0, 10),
      sets: results,
    };
    if (flags.out !== undefined)
      await writeOutput('--out', flags.out, `${JSON.stringify(report, null, 1)}\n`);
    if (flags.json) {
      process.stdout.write(`${JSON.stringify(report)}\n`);
      return;
    }
    process.stdout.write(`${info.name} on ${info.device.name}, KV ${report.kv.join(', ')}\n\n`);
    for (const r of results) {
      const groups = Object.entries(r.groups).map(
        ([g, { right, questions }]) => `${g} ${right}/${questions}`,
      );
      process.stdout.write(
        `${r.set.padEnd(14)} ${r.right}/${r.questions} right (reference ${r.referenceRight}), ${r.sameAsReference} answers the same, ${r.seconds.toFixed(1)} s\n${' '.repeat(15)}${groups.join(', ')}\n`,
      );
    }
  });
}
