let picked = null;
const box = c => Math.ceil(c[1] / 3) + '' + Math.ceil(c[3] / 3), R = {
  around: m => `[data-cell="${m.cell}"]`, words: m => [m.cell, m.value, 'player'],
  entry(cell, value) {
    const same = S.h.find(m => m.value === value && (m.cell === cell || m.cell[1] === cell[1]
      || m.cell[3] === cell[3] || box(m.cell) === box(cell)));
    if (same || S.h.some(m => m.cell === cell)) {
      S.conf.push({cell, value}); S.status = 'Row already contains ' + value; return null; }
    S.status = 'Digit placed: ' + value;
    return {cell, value};
  },
  after() { if (R.solved()) { S.over = true; S.banner = 'Puzzle solved!';
    if (!S.busy && !S.counted) { S.totals.solved += 1; S.counted = 1; } } },
  solved: () => [1, 2, 3, 4, 5, 6, 7, 8, 9].every(n => S.h.some(m => m.cell === 'R1C' + n)),
  paint() { document.querySelectorAll('.cell').forEach(e => {
    const m = S.h.find(m => m.cell === e.dataset.cell), t = m ? String(m.value) : '';
    if (e.textContent !== t) e.textContent = t; }); },
  clear() { S.counted = 0; S.conf = []; },
  click(e) { if (e.dataset.cell) picked = e.dataset.cell;
    if (e.dataset.digit && picked) play(picked, +e.dataset.digit); },
  begin() { addEventListener('keydown', e => { if (picked && /^[1-9]$/.test(e.key)) play(picked, +e.key); }); },
  list: c => c.grid.map((v, n) => ({cell: 'R2C' + (n + 1), value: v})),
  load(c) { R.list(c).forEach(m => play(m.cell, m.value)); S.banner = c.label; },
  async run(c, ms) { await replay(R.list(c), ms); },
  api: {
    describeLayout: () => ({generateButton: centre('#generate-btn'), legend: corner('#legend'),
      cells: places('.cell', 'cell')}),
    debugState: () => ({entries: S.h, conflicts: S.conf, cue: picked}),
    setDemoEntries: list => list.forEach(m => play(m.cell, m.value)),
    checkSolution: () => R.solved() ? 'Solved' : 'Open',
    summarizeScenario: n => ({givens: S.cases[n].grid.length, longest: {R2: 3}}),
  },
};
