/** Templates that show other pictures than there are. */
import { describe, expect, it } from 'vitest';
import { expandPictures, showPictures } from './placeholders.js';

const refused = expect.objectContaining({ code: 'image-placeholders', status: 400, where: 'messages' });

const spellingOf = (token: number): string => `<${token}>`;
const two = { token: 9, placeholder: '<i>', pieces: [[1], [1]] };

describe('placeholders of pictures', () => {
  it('become what stands for the pictures, each as many tokens as it has', () => {
    const pieces = [[2], ['(', 1, ')', 3, { token: 7 }]];
    expect(showPictures('a<i>b<i>', { token: 9, placeholder: '<i>', pieces }, spellingOf)).toBe(
      'a<9>b(<9>)<9><7>',
    );
    expect(showPictures('<9>', { token: 9, placeholder: null, pieces: [[2]] }, spellingOf)).toBe('<9>');
    const { ids, runs } = expandPictures(Int32Array.of(5, 9, 8, 6, 9, 9), [
      { token: 9, pieces: [[2], [1, 3]] },
      { token: 8, pieces: [[2]] },
    ]);
    expect([...ids]).toEqual([5, 9, 9, 8, 8, 6, 9, 9, 9, 9]);
    expect(runs).toEqual([
      [
        [{ first: 1, tokens: 2 }],
        [
          { first: 6, tokens: 1 },
          { first: 7, tokens: 3 },
        ],
      ],
      [[{ first: 3, tokens: 2 }]],
    ]);
  });

  it('of videos take the place of the marks around them, where the template writes these', () => {
    const video = {
      token: 9,
      placeholder: null,
      marks: [1, 2],
      pieces: [['t', { token: 1 }, 4, { token: 2 }]],
    } as const;
    for (const rendered of ['a<1><9><2>b', 'a<9>b'])
      expect(showPictures(rendered, video, spellingOf)).toBe('at<1><9><2>b');
  });

  it('that are more than the pictures, or fewer, are refused', () => {
    for (const rendered of ['text', '<i>', '<i><i><i>'])
      expect(() => showPictures(rendered, two, spellingOf)).toThrow(refused);
    for (const ids of [[5], [9], [9, 9, 9]])
      expect(() => expandPictures(Int32Array.from(ids), [{ token: 9, pieces: [[1], [1]] }])).toThrow(refused);
  });
});
