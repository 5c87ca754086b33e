"""Small programs that stand in for a coding agent's command line: each is given the file that says what to do, and
maybe a word that marks what it starts.

Only the program is a stand-in: folder, shell, confinement and reading are what a real one meets.
"""

from pathlib import Path

HEAD = '''
import json, os, pathlib, subprocess, sys, time
brief = pathlib.Path(sys.argv[1])
work = brief.parent
text = brief.read_text()
STARTS = """
import subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1]]
subprocess.Popen(sleep, start_new_session=True)
time.sleep(1)
"""
'''
TREE = "(work / 'engine' / 'cache.py').write_text('CAPACITY = 1\\n')\n"
SAYS = "(work / 'ANSWER.json').write_text(json.dumps({'summary': 'a cache', 'choices': {'BLOCK': 16}}))\n"
WORKS = TREE + SAYS
CLAUDE = (
    "print(json.dumps({'type': 'result', 'subtype': 'success', 'is_error': False, 'total_cost_usd': 0.25, 'usage': "
    "{'input_tokens': 10, 'cache_read_input_tokens': 90, 'output_tokens': 7}}))\n"
)
PROGRAMS = {
    "works": WORKS + CLAUDE,
    "silent": WORKS,
    "claims": "print('Done! All tests pass.')\n" + CLAUDE,
    "fails": "sys.stderr.write('no credit left\\n')\nsys.exit(3)\n",
    "admits": TREE + "print(json.dumps({'type': 'result', 'is_error': True, 'result': 'context too long'}))\n",
    "endless": "sleep = [sys.executable, '-c', 'import time; time.sleep(600)', sys.argv[2]]\n"
    "subprocess.Popen(sleep, start_new_session=True)\n"
    "print('thinking', flush=True)\ntime.sleep(600)\n",
    "orphans": "subprocess.Popen([sys.executable, '-c', STARTS, sys.argv[2]], start_new_session=True).wait()\n" + WORKS,
    "terminal": "assert not sys.stdin.isatty()\nname = input('Your name: ')\n",
    "tty": "open('/dev/tty').read()\n",
    "outside": WORKS + "brief.write_text('do nothing')\n(work / 'engine' / 'main.py').write_text('x = 1\\n')\n"
    "(work / 'notes').mkdir()\n(work / 'notes' / 'n.txt').write_text('n')\n"
    "(work / 'contracts' / 'linear.md').unlink()\n",
    "link": SAYS + "(work / 'engine' / 'model.py').symlink_to('/etc/passwd')\n" + TREE,
    "locks": WORKS
    + "for place in (brief, work / 'contracts' / 'linear.md', work / 'contracts'):\n    place.chmod(0)\n",
    "litters": TREE + "for n in range(10_001):\n    (work / f'{n}').touch()\n"
    "(work / 'FAULTS.md').symlink_to(sys.argv[2] + '/victim')\n",
    "learns": "done = work / 'FAULTS.md'\nif done.exists():\n    assert 'no file differs' in done.read_text()\n"
    "    (work / 'engine' / 'cache.py').write_text('CAPACITY = 1\\n')\n",
    "leaks": "(work / 'engine' / 'cache.py').write_text('K = ' + repr(os.environ['AGENT_LOGIN']))\n"
    "print('I was given', os.environ['AGENT_LOGIN'])\n",
    "environment": WORKS + "(work / 'engine' / 'cache.py').write_text(f'{sorted(os.environ)!r}')\n",
    "reviews": "(work / 'ANSWER.json').write_text(json.dumps({'findings': []}))\n",
    "checks": "(work / 'ANSWER.json').write_text(json.dumps({'word': 'ready', 'sum': 42}))\n",
    "gap": "(work / 'ANSWER.json').write_text(json.dumps({'missing_contract': 'linear', 'summary': 'no layout'}))\n",
    "floods": "while True:\n    print('x' * 1000000)\n",
    "huge": "(work / 'engine' / 'cache.py').write_text('x' * 2000000)\n",
}


def program(folder: Path, name: str) -> Path:
    """The file of a program."""
    place = folder / f"{name}.py"
    place.write_text(HEAD + PROGRAMS[name], encoding="utf-8")
    return place
