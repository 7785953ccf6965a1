let chosen = [], pairs = [], shuffles = 0, message = '', lives = 3, left = 95, combo = '';
const made = id => S.h.some(m => m.id === id);
const R = {
  words: m => ['match', m.coords.join('-')],
  entry(cell) {
    if (chosen[0] === cell) { chosen = []; message = 'Select a different tile'; return null; }
    chosen.push(cell);
    if (chosen.length < 2) return null;
    const p = pairs.find(p => p.coords.every(c => chosen.includes(c)) && !made(p.id));
    chosen = [];
    if (p) combo = 'Combo x' + (S.h.length + 1);
    return p || null;
  },
  after() { if (R.done()) { S.over = true; S.banner = 'Board cleared!';
    if (!S.busy && !S.counted) { S.totals.perfectClears += 1; S.counted = 1; } } },
  done: () => pairs.length > 0 && pairs.every(p => made(p.id)),
  paint() {
    document.querySelectorAll('.tile').forEach(e => { e.dataset.value ||= 'v';
      e.classList.toggle('cleared', S.h.some(m => m.coords.includes(e.dataset.cell))); });
    $('#status-message').textContent = message; $('#combo-indicator').textContent = combo;
    $('#timer').textContent = Math.floor(left / 60) + ':' + String(left % 60).padStart(2, '0');
    $('#lives-remaining').textContent = 'Lives ' + lives; },
  begin() { setInterval(() => { left -= 1; paint(); }, 1000); },
  clear() { S.counted = 0; chosen = []; },
  more: () => ({timer: left, scoreboard: S.totals, pairs}),
  back(v) { pairs = v.pairs; },
  click(e) { if (e.dataset.cell) play(e.dataset.cell);
    if (e.id === 'shuffle-button') app.applyShuffle(); },
  load(c) { pairs = c.steps; pairs.forEach(p => { S.h.push(p); note('load', p.id); }); S.banner = c.winner; },
  async run(c, ms) { pairs = c.steps; await replay(c.steps, ms); },
  api: {
    describeLayout: () => ({startButton: centre('#start-btn'), legend: corner('#legend'),
      hud: corner('#hud'), tiles: places('.tile', 'cell')}),
    debugState: () => ({selections: chosen, matchedPairs: S.h.map(m => m.id), shuffleCount: shuffles,
      timer: left, lives}),
    setDemoPairs(list) { pairs = list; },
    applyShuffle() { shuffles += 1; S.totals.shuffles += 1; S.status = 'Tiles shuffled'; paint(); },
    triggerHint() { S.totals.hints += 1; },
    checkCleared: () => ({cleared: R.done(), remaining: pairs.length - S.h.length}),
    registerStrike() { lives -= 1; paint(); },
    summarizeScenario: n => ({totalTiles: 4, pairs: S.cases[n].steps.length, longestPath: 3}),
  },
};
