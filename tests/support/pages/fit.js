let settings = {growTimeMs: 1000, minTarget: 0.2, maxTarget: 0.5}, theme = 'plain', muted = false;
K.cases = [0, 1].map(n => ({id: n, label: 'case ' + n, moves: [], target: 1, winner: 'w',
  attempts: [{size: 60, success: true}, {size: 130, success: false}, {size: 70, success: true}].slice(n)}));
const R = {
  words: m => [m.size], entry: m => m,
  store() { localStorage.setItem('squarefit-progress', JSON.stringify({settings, level: S.totals.level})); },
  paint() { const last = S.h[S.h.length - 1], e = $('#last-attempt');
    e.style.display = last ? 'block' : 'none';
    if (last) { const size = last.size + 'px';
      if (e.style.width !== size) Object.assign(e.style, {width: size, height: size}); }
    $('#level-indicator').textContent = 'Level ' + S.totals.level; },
  clear() {},
  more: () => ({level: S.totals.level}), back(v) { S.totals.level = v.level; },
  click(e) { if (e.id === 'audio-toggle') muted = !muted;
    if (e.id === 'show-rewarded') $('#ad-log').textContent += ' rewarded shown';
    if (e.id === 'show-interstitial') $('#ad-log').textContent += ' interstitial shown'; },
  load(c) { c.attempts.forEach(m => play(m)); S.status = c.label; },
  async run(c, ms) { await replay(c.attempts, ms); },
  api: {
    describeLayout: () => ({playfield: corner('#playfield'), target: corner('#target-area'),
      startButton: corner('#start-btn'), theme}),
    debugState: () => ({attempts: S.h, currentSize: 0, lastResult: null, level: S.totals.level}),
    async simulateAttempt(ms) { await wait(40); const success = ms < 1000;
      play({size: ms / 10, success}); S.totals.attempts += 1;
      S.status = success ? 'Perfect fit!' : 'Too large'; paint(); },
    setDemoSequence() {}, getSettings: () => settings,
    applySettings(s) { settings = {...settings, ...s}; R.store(); },
    advanceLevel() { S.totals.level += 1; S.h = []; R.store(); paint(); },
    exportProgress: () => localStorage.getItem('squarefit-progress'),
    setTheme(name) { theme = name; document.body.style.backgroundColor = name === 'neon' ? '#013' : '#fff'; },
    getAudioState: () => ({muted, music: !muted, sfx: !muted}),
    mockBackendSync: async () => { await wait(50); S.status = 'synced'; paint();
      return {synced: true, source: 'client', timestamp: Date.now()}; },
    summarizeScenario: n => ({attempts: S.cases[n].attempts.length, bestFit: 90}),
  },
};
