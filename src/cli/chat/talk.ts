/** The loop of `kvant chat`: what is entered is done or asked, until there is no more or Ctrl-C says so. */
import { KvantError } from '../../errors.js';
import type { SamplingOptions } from '../../sampling/options.js';
import { EXIT, exitCodeOf } from '../exit.js';
import { AnswerView, rateLine } from './answer-view.js';
import { type ChatInput, type ChatOutput, ChatTerminal } from './chat-terminal.js';
import { runCommand } from './commands.js';
import type { Conversation } from './conversation.js';
import type { Entry } from './message-lines.js';
import { Styles } from './styles.js';

export interface TalkStreams {
  readonly input: ChatInput;
  readonly output: ChatOutput;
  readonly errors: ChatOutput;
}

export interface TalkOptions {
  /** What stands above the first prompt. */
  readonly title: string;
  /** What the model samples with where nothing is set. */
  readonly defaults: SamplingOptions;
  /** No rates. */
  readonly quiet?: boolean;
}

export class Talk {
  readonly #conversation: Conversation;
  readonly #streams: TalkStreams;
  readonly #options: TalkOptions;
  readonly #styles: Styles;
  readonly #terminal: ChatTerminal;
  #running: AbortController | null = null;
  #code: number = EXIT.ok;
  #stop = false;

  constructor(conversation: Conversation, streams: TalkStreams, options: TalkOptions) {
    this.#conversation = conversation;
    this.#streams = streams;
    this.#options = options;
    // Answers that go into a file do not take prompts along.
    const screen = streams.output.isTTY === true ? streams.output : streams.errors;
    this.#styles = new Styles(streams.output);
    this.#terminal = new ChatTerminal(streams.input, screen, () => this.#interrupt());
  }

  /** Resolves with the exit code: what was refused counts where nobody was there to see it. */
  async run(): Promise<number> {
    try {
      if (this.#terminal.interactive) this.#note(`${this.#options.title} /help shows the commands.`);
      for (;;) {
        const entry = await this.#terminal.next();
        if (entry === null || this.#stop) break;
        if (!(await this.#handle(entry)) || this.#stop) break;
      }
    } finally {
      this.#terminal.close();
    }
    return this.#code;
  }

  /** A signal to the process: the first stops what runs, and ends the talk where nobody is at a prompt. */
  end(): void {
    this.#stop = true;
    this.#code = EXIT.interrupted;
    this.#running?.abort();
    this.#terminal.close();
  }

  /** Ctrl-C. True if an answer was stopped; while that is under way a second one ends the talk. */
  #interrupt(): boolean {
    if (this.#running === null) return false;
    if (this.#running.signal.aborted) this.end();
    this.#running.abort();
    return true;
  }

  /** False: the conversation is over. */
  async #handle({ kind, text }: Entry): Promise<boolean> {
    try {
      if (kind === 'command') {
        const said = runCommand(text, this.#conversation, this.#options.defaults);
        if (said === null) return false;
        this.#streams.output.write(`${said}\n`);
      } else if (text.trim() !== '') await this.#answer(text.trim());
    } catch (error) {
      if (!(error instanceof KvantError)) throw error;
      this.#refused(error);
    }
    return true;
  }

  async #answer(text: string): Promise<void> {
    const { output } = this.#streams;
    const view = new AnswerView((part) => output.write(part), this.#styles, output.isTTY === true);
    this.#running = new AbortController();
    try {
      const result = await this.#conversation
        .ask(text, this.#running.signal, (delta) => view.show(delta))
        .finally(() => view.end());
      if (!this.#options.quiet) this.#note(rateLine(result));
    } finally {
      this.#running = null;
    }
  }

  #refused(error: KvantError): void {
    const { output, errors } = this.#streams;
    const target = this.#terminal.interactive ? output : errors;
    const styles = new Styles(target);
    const fix = error.code === 'context-length-exceeded' ? ' /reset forgets the conversation.' : '';
    target.write(`${styles.red('error')} ${error.message} ${error.fix ?? ''}${fix}`.trimEnd());
    target.write('\n');
    if (!this.#terminal.interactive) this.#code = exitCodeOf(error);
  }

  /** Beside the answers: dim on a terminal, never among what is piped on. */
  #note(text: string): void {
    const { output, errors } = this.#streams;
    const target = this.#terminal.interactive && output.isTTY === true ? output : errors;
    target.write(`${new Styles(target).dim(text)}\n`);
  }
}
