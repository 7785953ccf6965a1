let way = 'right', score = 0, state = 'running', reason = '', timer = null, tapped = ['', 0];
const NEXT = {up: [-1, 0], down: [1, 0], left: [0, -1], right: [0, 1]};
const BACK = {up: 'down', down: 'up', left: 'right', right: 'left'};
const R = {
  around: () => `[data-cell="${S.h[0]}"]`, words: m => [m],
  start() { S.h = ['r10c10']; way = 'right'; score = 0; state = 'running'; S.over = false;
    S.status = 'Running'; note('start'); paint(); },
  turn(to) { if (to !== BACK[way]) way = to; },
  step() {
    if (S.over) return;
    const [r, c] = S.h[0].slice(1).split('c').map(Number), [dr, dc] = NEXT[way];
    const head = `r${r + dr}c${c + dc}`;
    score += 1; S.n += 1; note('tick', way);
    if (S.h.includes(head)) { state = 'game-over'; reason = 'self-hit'; S.over = true;
      if (!S.busy) { S.totals.games += 1; S.totals.best = Math.max(S.totals.best, score);
        S.totals.longest = Math.max(S.totals.longest, S.h.length); } }
    else S.h.unshift(head);
    paint();
  },
  paint() { document.querySelectorAll('.cell').forEach(e => {
    const on = S.h.includes(e.dataset.cell) ? 'cell on' : 'cell';
    if (e.className !== on) e.className = on; });
    $('#score-value').textContent = score; },
  tap(to) { const now = performance.now();
    if (tapped[0] === to && now - tapped[1] < 300) { S.status = 'Paused'; paint(); }
    else if (!S.over) R.turn(to);
    tapped = [to, now]; },
  begin() { addEventListener('keydown', e => { const to = e.key.replace('Arrow', '').toLowerCase();
    if (NEXT[to] && !S.busy) R.tap(to); }); },
  clear() { clearInterval(timer); score = 0; state = 'running'; },
  more: () => ({score}),
  back(v) { clearInterval(timer); score = v.score; },
  click(e) { if (e.id === 'start-btn') R.start(); if (e.dataset.dir) R.tap(e.dataset.dir); },
  walk(c) { S.h = ['r5c5']; c.path.forEach(to => { R.turn(to); R.step(); }); },
  load(c) { R.walk(c); S.status = c.winner; },
  async run(c, ms) { S.busy = true; S.h = ['r5c5'];
    for (const to of c.path) { R.turn(to); R.step(); await wait(ms); } S.busy = false; paint(); },
  api: {
    describeArena: () => ({gridSize: {rows: 20, cols: 20}, startButton: centre('#start-btn'),
      legend: corner('#legend'), cells: places('.cell', 'cell')}),
    debugState: () => ({direction: way, segments: S.h, food: null, status: S.status}),
    setDemoPath(list, options) {
      if (!S.h.length || S.over) R.start();
      const left = list.map(to => to.replace('Arrow', '').toLowerCase());
      timer = setInterval(() => { if (!left.length) return clearInterval(timer);
        R.turn(left.shift()); R.step(); }, options.speedMs);
    },
    pause() { clearInterval(timer); note('pause'); }, resume() { note('resume'); },
    checkStatus: () => ({state, reason, score}),
    summarizeScenario: n => ({segments: S.cases[n].path.length + 1, streak: 2}),
  },
};
