// A page in the shape that the benchmark's games and frontends ask for, drawn from K; written for
// tests. A scenario's own rules follow in R.
const S = {h: [], u: [], log: [], busy: false, over: false, conf: [], status: K.status,
  banner: '', totals: {...K.totals}, t0: performance.now(), n: 0, cases: K.cases || [], gone: []};
const $ = s => document.querySelector(s), wait = ms => new Promise(r => setTimeout(r, ms));
const note = (...a) => S.log.push([Date.now(), ...a].join(','));
const app = window[K.space || 'app'] = {};

function make(parent, spec) {
  const e = document.createElement(spec.tag || 'div');
  if (spec.id) e.id = spec.id;
  if (spec.class) e.className = spec.class;
  if (spec.html) e.innerHTML = spec.html;
  if (spec.text) e.textContent = spec.text;
  for (const [k, v] of Object.entries(spec.data || {})) e.dataset[k] = v;
  for (const [k, v] of Object.entries(spec.attrs || {})) e.setAttribute(k, v);
  if ('x' in spec) Object.assign(e.style, {position: 'absolute', left: spec.x + 'px',
    top: spec.y + 'px', width: spec.w + 'px', height: spec.h + 'px', boxSizing: 'border-box'});
  parent.appendChild(e);
  for (const child of spec.inner || []) make(e, child);
  return e;
}
function init() {
  if (!$('#' + K.page[0].id)) {
    K.page.forEach(spec => make(document.body, spec));
    const rows = K.keys.map(k => `<tr><td>${k}</td><td data-key="${k}"></td></tr>`).join('');
    const aside = $('#' + K.aside);
    if (aside) aside.innerHTML += `<table style="width:100%"><tr><th>Metric</th><th>Value</th></tr>${rows}</table>`;
  }
}
const centre = s => { const r = (typeof s === 'string' ? $(s) : s).getBoundingClientRect();
  return {x: r.x + r.width / 2, y: r.y + r.height / 2, width: r.width, height: r.height}; };
const corner = s => { const r = $(s).getBoundingClientRect();
  return {x: r.x, y: r.y, width: r.width, height: r.height}; };
const places = (s, key) => Object.fromEntries([...document.querySelectorAll(s)].map(
  e => [e.dataset[key], centre(e)]));

function paint() {
  if (R.paint) R.paint();
  const last = S.h[S.h.length - 1], ring = K.ring && $('#' + K.ring);
  if (ring) {
    const at = last && R.around && $(R.around(last));
    ring.style.display = at ? 'block' : 'none';
    if (at) { const r = at.getBoundingClientRect();
      Object.assign(ring.style, {left: r.x + scrollX + r.width / 2 - K.ringSize / 2 + 'px',
        top: r.y + scrollY + r.height / 2 - K.ringSize / 2 + 'px'}); }
  }
  if ($(K.statusAt)) $(K.statusAt).textContent = S.status;
  if (K.bannerAt && $(K.bannerAt)) $(K.bannerAt).textContent = S.banner;
  for (const [s, k] of Object.entries(K.labels || {})) if ($(s)) $(s).textContent = k + ' ' + S.totals[k];
}
function play(place, extra) {
  if (S.busy || S.over) return;
  const made = R.entry(place, extra);
  if (made) { S.h.push(made); S.u = []; note(...R.words(made)); S.n += 1; R.after && R.after(made); }
  paint();
}
function undo() { if (S.busy || !S.h.length) return; S.u.push(S.h.pop()); S.over = false; S.banner = '';
  note('undo'); paint(); }
function redo() { if (S.busy || !S.u.length) return; S.h.push(S.u.pop()); note('redo'); R.after && R.after(); paint(); }
async function replay(list, ms) {
  S.busy = true; note('replay_start');
  S.h = []; paint();
  for (const entry of list) { S.h.push(entry); S.n += 1; paint(); await wait(ms); }
  note('replay_end'); S.busy = false; R.after && R.after(); paint();
}
const serialize = () => JSON.stringify({[K.list]: S.h, log: S.log, banner: S.banner, over: S.over,
  status: S.status, ...(R.more ? R.more() : {})});
function apply(text) {
  const v = typeof text === 'string' ? JSON.parse(text) : text;
  S.h = v[K.list]; S.log = v.log; S.banner = v.banner; S.over = v.over; S.status = v.status; S.u = [];
  R.back && R.back(v); paint();
}
function reset() { S.h = []; S.u = []; S.over = false; S.busy = false; S.banner = ''; S.status = K.status;
  R.clear && R.clear(); note('reset'); paint(); }
function save() { const made = app[K.names.serialize]();
  $('#state-json').value = made; localStorage.setItem(K.storage, made); }
function load(n) { reset(); R.load(S.cases[n]); S.n += 1; paint(); }
function run(n, options) { reset(); return R.run(S.cases[n], options.intervalMs); }
const diagnose = () => ({...Object.fromEntries(K.keys.map(k => [k, S.n])),
  elapsedMs: Math.round(performance.now() - S.t0), [K.listed]: S.h.slice(-3).map(String)});

addEventListener('DOMContentLoaded', async () => {
  Object.assign(app, R.api);
  for (const [mine, theirs] of Object.entries({init, undo, redo, serialize, apply, reset, load, run,
    diagnose, heap: () => 1000 + S.n, export: () => S.log.join('\n'), totals: () => ({...S.totals}),
    replay: () => replay([...S.h], K.pace)}))
    if (K.names[mine]) app[K.names[mine]] ||= theirs;
  app[K.names.init]();
  document.addEventListener('click', event => {
    const e = event.target, action = e.dataset.action;
    if (action && K.actions[action]) return app[K.actions[action]]();
    if (e.id === K.save[0]) return save();
    if (e.id === K.save[1]) return app[K.names.apply]($('#state-json').value);
    if (e.id === K.save[2]) return app[K.names.reset]();
    if (e.id === K.toggle) { const d = diagnose();
      for (const k of K.keys) $(`[data-key="${k}"]`).textContent = JSON.stringify(d[k]);
      $('#' + K.aside).style.display = 'block'; return; }
    R.click && R.click(e, event);
  });
  if (localStorage.getItem(K.storage)) app[K.names.apply](localStorage.getItem(K.storage));
  if (K.file) S.cases = await (await fetch(K.file)).json();
  R.begin && R.begin();
  paint();
});
