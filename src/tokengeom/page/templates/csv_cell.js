"use strict";
// A cell of CSV that no spreadsheet computes and no display reverses: the beginning of a formula and controls of the
// writing direction become \uXXXX, as in the files of `export`. Numbers stay numbers.
const csvCell = (() => {
  const code = (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return (text) => {
    const shown = text.replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, code);
    const safe = Number.isNaN(Number(shown)) ? shown.replace(/^[=+\-@\t\r](?=[^])/, code) : shown;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
})();
