/** What the disk tier has done since it was opened. */

export class DiskCounts {
  /** Blocks read and found good, and their bytes. */
  readBlocks = 0;
  readBytes = 0;
  writtenBlocks = 0;
  writtenBytes = 0;
  /** Blocks not written: the queue was full, the file system failed, or the cap is smaller than the block. */
  dropped = 0;
  /** Files removed for others. */
  evicted = 0;
  /** Files not as they were written. */
  corrupt = 0;
  /** Names and files in the folder that are not ours, and those of other versions. */
  foreign = 0;
  /** Failures of the file system. */
  readErrors = 0;
  writeErrors = 0;
  /** Reads given up because they took too long. */
  slowReads = 0;
}
