let B = [0, 0, 0, 0].map(() => [0, 0, 0, 0]), score = 0, queue = [], events = [], past = [], future = [], last = '';
const copy = b => b.map(r => [...r]);
const slide = row => { const v = row.filter(Boolean), out = [];
  for (let n = 0; n < v.length; n += 1) { if (v[n] === v[n + 1]) { out.push(2 * v[n]); score += 2 * v[n]; n += 1; }
    else out.push(v[n]); } while (out.length < 4) out.push(0); return out; };
const flip = b => b[0].map((_, c) => b.map(r => r[c]));
const R = {
  move(to) {
    if (S.busy || S.over) return;
    const before = copy(B);
    let b = to === 'up' || to === 'down' ? flip(B) : copy(B);
    b = b.map(r => to === 'right' || to === 'down' ? slide([...r].reverse()).reverse() : slide(r));
    B = to === 'up' || to === 'down' ? flip(b) : b;
    if (JSON.stringify(B) === JSON.stringify(before)) return;
    past.push(before); future = []; last = to; S.n += 1; S.status = 'Moved ' + to; note(to, score);
    const s = queue.shift();
    if (s) { B[s.row][s.col] = s.value; events.push({type: 'spawn', ...s}); }
    R.peak(); paint();
    document.querySelectorAll('.cell').forEach(e => { const [r, c] = R.at(e);
      if (B[r][c] > before[r][c] && B[r][c] !== (s && s.value)) e.classList.add('merge-flash'); });
    setTimeout(() => document.querySelectorAll('.merge-flash').forEach(e => e.classList.remove('merge-flash')), 100);
  },
  peak() { if (Math.max(...B.flat()) >= 2048) { S.over = true; S.banner = '2048 unlocked!'; note('milestone'); } },
  at: e => e.dataset.cell.slice(1).split('c').map(n => n - 1),
  paint() { document.querySelectorAll('.cell').forEach(e => { const [r, c] = R.at(e), t = B[r][c] || '';
    if (e.textContent !== String(t)) e.textContent = t; }); },
  begin() { addEventListener('keydown', e => { const to = e.key.replace('Arrow', '').toLowerCase();
    if (/^(up|down|left|right)$/.test(to)) R.move(to); }); },
  click(e) { if (e.dataset.move) R.move(e.dataset.move); },
  clear() { S.totals.gamesPlayed += 1; S.totals.bestTile = Math.max(S.totals.bestTile, ...B.flat());
    S.totals.totalScore += score; B = B.map(() => [0, 0, 0, 0]); score = 0; past = []; future = []; },
  load(c) { c.spawns.forEach(s => { B[s.row][s.col] = s.value; }); c.moves.forEach(m => note(m)); S.banner = String(c.targetTile); },
  async run(c, ms) { S.busy = true; for (const s of c.spawns) { B[s.row][s.col] = s.value; S.n += 1; paint(); await wait(ms); } S.busy = false; },
  api: {
    describeLayout: () => ({gridSize: corner('#grid'), startButton: centre('#new-game'), cards: {}, cells: places('.cell', 'cell')}),
    debugState: () => ({board: copy(B), score, lastMove: last, events}),
    setGridState(m) { B = copy(m); past = []; paint(); }, setSpawnQueue(q) { queue = [...q]; },
    applyScript: list => list.forEach(R.move),
    undo() { if (past.length) { future.push(copy(B)); B = past.pop(); paint(); } },
    redo() { if (future.length) { past.push(copy(B)); B = future.pop(); paint(); } },
    checkMilestone: () => Math.max(...B.flat()) >= 2048 ? 2048 : null,
    async beginReplay() { app.isReplaying = S.busy = true; const all = [...past, copy(B)];
      for (const b of all) { B = copy(b); paint(); await wait(280); } app.isReplaying = S.busy = false; },
    serializeState: () => JSON.stringify({board: B, score, best: S.totals.bestTile, log: S.log, banner: S.banner}),
    applyState(t) { const v = typeof t === 'string' ? JSON.parse(t) : t; B = v.board; score = v.score; S.log = v.log; S.banner = v.banner; paint(); },
    summarizeScenario: n => ({totalTiles: S.cases[n].spawns.length, maxTile: 2}),
  },
};
