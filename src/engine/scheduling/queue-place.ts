/** Where a request stands among those that wait. Plain data. */
export interface QueuePlace {
  /** Whole number; a higher one goes first. */
  readonly priority: number;
  /** The group (an API key) that the time is shared between. */
  readonly share: string;
  /** Milliseconds after which it is too late to start; Infinity for never. */
  readonly startWithinMs: number;
}

export const ORDINARY_PLACE: QueuePlace = {
  priority: 0,
  share: '',
  startWithinMs: Number.POSITIVE_INFINITY,
};
