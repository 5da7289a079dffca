/**
 * Rooms that pieces of weights are read into on their way to the device. They are used again for the next piece and the
 * next matrix: fresh memory for each costs as much as reading into it.
 */
export class Staging {
  readonly #idle: ArrayBuffer[] = [];
  #made = 0;

  /** Bytes of all rooms, in use or not. */
  get bytes(): number {
    return this.#made;
  }

  /** A room of at least so many bytes, for one piece after the other. What it holds is left over from others. */
  take(bytes: number): ArrayBuffer {
    const idle = this.#idle.pop();
    if (idle !== undefined && idle.byteLength >= bytes) return idle;
    this.#made += bytes - (idle?.byteLength ?? 0);
    return new ArrayBuffer(bytes);
  }

  give(room: ArrayBuffer): void {
    this.#idle.push(room);
  }

  /** Forgets the rooms that nobody uses: everything is loaded. */
  clear(): void {
    for (const room of this.#idle.splice(0)) this.#made -= room.byteLength;
  }
}
