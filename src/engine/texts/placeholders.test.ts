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
    const { ids, runs } = expandPictures(Int32Array.of(5, 9, 6, 9, 9), { token: 9, pieces: [[2], [1, 3]] });
    expect([...ids]).toEqual([5, 9, 9, 6, 9, 9, 9, 9]);
    expect(runs).toEqual([
      [{ first: 1, tokens: 2 }],
      [
        { first: 4, tokens: 1 },
        { first: 5, tokens: 3 },
      ],
    ]);
  });

  it('that are more than the pictures, or fewer, are refused', () => {
    for (const rendered of ['text', '<i>', '<i><i><i>'])
      expect(() => showPictures(rendered, two, spellingOf)).toThrow(refused);
    for (const ids of [[5], [9], [9, 9, 9]])
      expect(() => expandPictures(Int32Array.from(ids), { token: 9, pieces: [[1], [1]] })).toThrow(refused);
  });
});
