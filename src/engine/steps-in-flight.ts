/** The steps under way, oldest first. What describes them is used again and again. */

import type { Program } from '../device/device.js';
import type { StepInputs } from '../device/step.js';
import type { StepResult } from '../device/step-result.js';
import type { KvantError } from '../errors.js';
import { asKvantError } from './core-errors.js';
import { StepInFlight } from './step-filler.js';
import { EventTurn } from './yield.js';

export class StepsInFlight {
  readonly #most: number;
  readonly #turn = new EventTurn();
  readonly #under: StepInFlight[] = [];
  readonly #spare: StepInFlight[] = [];
  #open: StepInFlight | null = null;

  /** At most so many are under way. */
  constructor(most: number) {
    this.#most = most;
    for (let i = 0; i < most; i++) this.#spare.push(new StepInFlight());
  }

  get count(): number {
    return this.#under.length;
  }

  get full(): boolean {
    return this.#under.length === this.#most;
  }

  /** The one whose draw is still to be asked for: no other can be launched before. */
  get open(): StepInFlight | null {
    return this.#open;
  }

  /** The one that retires next. */
  get first(): StepInFlight | undefined {
    return this.#under[0];
  }

  /** One to be filled: `launch` it, or `recycle` it. There is one unless all are under way. */
  take(): StepInFlight {
    return this.#spare.pop()!;
  }

  launch(flight: StepInFlight, program: Program, inputs: StepInputs, now: number): void {
    this.#under.push(flight);
    flight.submittedAt = now;
    try {
      // Caught at once: it is awaited when its turn comes, and until then a rejection would be unhandled.
      flight.result = program.submit(inputs).catch(asKvantError);
    } catch (error) {
      flight.result = Promise.resolve(asKvantError(error));
    }
  }

  /** The same for the first half of a step. */
  launchForward(flight: StepInFlight, program: Program, inputs: StepInputs, now: number): void {
    this.#under.push(flight);
    flight.submittedAt = now;
    try {
      program.forward(inputs);
      this.#open = flight;
    } catch (error) {
      flight.result = Promise.resolve(asKvantError(error));
    }
  }

  /** `onComputed` is told when the device has computed the open step. */
  watch(program: Program, onComputed: () => void): void {
    const flight = this.#open!;
    if (flight.watched) return;
    flight.watched = true;
    const { step } = flight;
    void program.computed().then(() => {
      // Its draw may be over, and another step in its place.
      if (this.#open !== flight || flight.step !== step) return;
      flight.computed = true;
      onComputed();
    });
  }

  /** Asks for the draw of the open step. */
  launchSample(program: Program, inputs: StepInputs): void {
    const flight = this.#open!;
    this.#open = null;
    try {
      flight.result = program.sample(inputs).catch(asKvantError);
    } catch (error) {
      flight.result = Promise.resolve(asKvantError(error));
    }
  }

  /** What a step brought, or why it brought nothing. */
  result(flight: StepInFlight): Promise<StepResult | KvantError> {
    this.#turn.begin();
    return flight.result!;
  }

  /** Messages have had a chance to come in since `result` was asked for. */
  get yielded(): boolean {
    return this.#turn.over;
  }

  /** Resolves when they have had it. */
  turn(): Promise<void> {
    return this.#turn.wait();
  }

  /** The first has retired. Recycle it when nobody looks at it any more. */
  retire(): void {
    this.#under.shift();
  }

  recycle(flight: StepInFlight): void {
    this.#spare.push(flight);
  }

  /** None of them will come back. */
  abandon(): void {
    this.#open = null;
    this.#spare.push(...this.#under.splice(0));
  }
}
