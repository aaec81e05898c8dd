"""Snippets of seed 002 that more than one test runs, as the seed has them."""

from __future__ import annotations

BROKEN = """
import json

issues = []
for i, line in enumerate(open('rollouts.jsonl')):
    data = json.loads(line)
    
    # Empty responses (model/agent failure)
    if not data.get('response', {}).get('content'):
        issues.append(f"Line {i}: Empty response")
    
    # Error responses (agent crashed)
    if data.get('response', {}).get('content') in ['ERROR', 'FAILED']:
        issues.append(f"Line {i}: Error response")
    
    # Extreme reward outliers (verification bug)
    if data.get('reward', 0) < -10 or data.get('reward', 0) > 10:
        issues.append(f"Line {i}: Unusual reward {data['reward']}")

if issues:
    print(f"⚠️ Found {len(issues)} critical issues:")
    for issue in issues[:10]:  # Show first 10
        print(f"  {issue}")
    print("\\nThese indicate collection problems. Fix before proceeding to quality filtering.")
"""  # noqa: W293 - as the seed has it
