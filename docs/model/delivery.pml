/*
 * One delivery: two workers, two providers, a sweep, a clock, and a world that interferes.
 *
 * A step below is one short transaction of db/leases.py (it holds the row's lock from its first statement to its commit,
 * so nothing comes between) or one thing that happens outside the database. Between any two steps anything else may
 * happen: a worker may stop there for ever (crash), or for as long as it likes and go on (pause). What is left out, and why
 * nothing is lost by it, is in README.md.
 *
 *   -DBROKEN=rule      drop one rule of the protocol; the checker must then find a run that breaks a guarantee
 *   -DCHECK=guarantee  look at this guarantee alone
 *   -DPAUSE_AT_THE_WIRE  a worker may also stop between its look at the local fence and the write
 *   -DSETTLE_AGAIN     the commit of a settle may go unanswered, and the worker repeats it, at once or late
 *   -DCOVER            print each transition of the row when it is taken for the first time
 */

#ifndef LEASES
#define LEASES 3          /* how many leases a run may have */
#endif
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef MAX_ATTEMPTS
#define MAX_ATTEMPTS 2
#endif
#ifndef UNKNOWN_BUDGET
#define UNKNOWN_BUDGET 2  /* replays through a provider that knows our key; without a key it is one */
#endif

/* db/delivery_state.py: State, Event, Outcome, Evidence, GateReason */
mtype = { pending, sending, unknown, accepted, failed, expired, cancelled };
mtype = { claim, hand_over, settle_accepted, settle_transient, settle_permanent, settle_unknown, settle_refused_us,
          settle_not_sent, reclaim, evidence, close_gate, end_overdue };
mtype = { none, transient, permanent, refused_us, not_sent, refused };
mtype = { response, lookup, webhook, consumed, superseded, requested, ended };
mtype = { send, replay, look_up };  /* db/leases.py: Lease.action */
mtype = { found };                  /* a look-up's answer; recorded as not_sent with lookup_found */

/* The rules that -DBROKEN= can drop. README.md has a line for each. */
mtype = { nothing,
    /* the lease */
    claim_locks_the_row, reclaim_waits_for_the_lease, hand_over_is_fenced, settle_is_fenced, settle_within_the_lease,
    lock_then_test, local_fence, fence_counts_from_before,
    /* the hand-over */
    hand_over_commits_first, hand_over_unanswered_sends_nothing, crash_before_it_is_no_unknown,
    open_is_sticky_at_settle, open_is_sticky_at_reclaim, refusal_closes_its_own, not_sent_closes_its_own,
    accepted_closes_nothing, not_found_proves_nothing,
    /* the replay */
    replay_stays_with_its_provider, replay_budget, replay_without_key_once,
    replay_without_key_waits, replay_within_the_key_window,
    /* the gate */
    gate_at_hand_over, gate_on_the_row, supersede_closes_the_gate, cancel_closes_the_gate, consume_closes_the_gate,
    gate_on_the_way_back,
    /* evidence */
    evidence_needs_a_hand_over, evidence_locks_the_row, evidence_in_one_transaction, late_acceptance_counts,
    consume_is_conditional,
    /* the end */
    lost_leases_are_reclaimed, lost_leases_are_counted, attempts_are_counted, overdue_pending_ends,
    unresolved_unknown_ends, late_refusal_frees_unknown, closed_gate_ends_waiting_for_a_replay };

/* What must hold; design.md, section 2. */
mtype = { everything,
    G2_one_live_lease, G2_no_hand_over_without_lease, G2_stale_writers_change_nothing, G2_bytes_only_inside_the_lease,
    G3_every_run_ends, G3_budgets_hold,
    G4_duplicates_are_recorded, G4_second_provider_gets_nothing, G4_replays_are_bounded,
    G4_no_replay_while_evidence_may_come, G4_key_prevents_duplicates, G4_open_is_never_forgotten,
    G5_nothing_sent_before_the_hand_over, G5_no_unknown_before_the_hand_over,
    G6_token_alive_at_hand_over, G6_dead_is_not_pending, G7_consumed_once, G8_accepted_has_evidence, G8_evidence_is_never_lost };

#ifndef BROKEN
#define BROKEN nothing
#endif
#ifndef CHECK
#define CHECK everything
#endif
#define without(rule) (BROKEN == rule)
#define guarantee(name, holds) assert((holds) || (CHECK != everything && CHECK != name))
#define implies(this, that) (!(this) || (that))

#define KEYED 0   /* keeps our key for a while and takes a mail once under it; answers look-ups */
#define KEYLESS 1 /* SMTP */
#define NOBODY 2  /* no worker, no provider */

/* The email_outbox row. */
mtype status = pending;
byte lease_token, lease_owner = NOBODY;
bool lease_lives;                      /* lease_until is in the future */
bool gate_is_closed;                   /* send_before is not */
mtype gate_reason = none;
byte open_provider = NOBODY;
byte attempt_count, replay_count, lost_count;

/* The delivery_attempts rows, by lease token; by provider, what transactions count in them. */
typedef Attempt { byte handed_to = NOBODY; mtype outcome = none };
Attempt attempt[5];                    /* 1 to LEASES */
byte open_at[2];                       /* hand-overs that are open */
bool handed_to[2];                     /* was there ever one? */

/* The verification, as far as the delivery sees it. */
mtype verification = requested;

/* Time: what has passed. Each is an event of the clock below. */
bool evidence_window_over;             /* EVIDENCE_WINDOW_SECONDS since the last open hand-over */
bool key_window_over;                  /* the provider's replay_window since the first open hand-over */
bool fence_runs[2];                    /* by worker: the local fence still lets bytes leave */

/* The world: what really happened, which no transaction may read. */
byte mails[2];                         /* by provider: how many it took for delivery */
bool key_forgotten;                    /* the keyed provider would take the mail anew */

/* Scratch, none between steps: where the row goes, and by which event. */
mtype to = none, by = none;

#define closes(outcome) (outcome == transient || outcome == permanent || outcome == refused_us || outcome == not_sent)
#define an_attempt_was(it) \
    (attempt[1].outcome == it || attempt[2].outcome == it || attempt[3].outcome == it || attempt[4].outcome == it)
#define any_open (open_at[KEYED] + open_at[KEYLESS] > 0)
#define was_handed_over (handed_to[KEYED] || handed_to[KEYLESS])
#define is_terminal (status == accepted || status == failed || status == expired || status == cancelled)

/* rules.may_replay: gate open, key and budget left. The claim adds: without a key, not before the evidence window ended. */
#define may_replay \
    (any_open && (!gate_is_closed || without(closed_gate_ends_waiting_for_a_replay)) && \
     (open_provider == KEYED \
        -> (replay_count < UNKNOWN_BUDGET || without(replay_budget)) \
           && (!key_window_over || without(replay_within_the_key_window)) \
        :  (replay_count < 1 || without(replay_without_key_once))))
#define replay_is_due \
    (may_replay && !gate_is_closed && (open_provider == KEYED || evidence_window_over || without(replay_without_key_waits)))

/* rules._ended_by_gate, _into_pending, _back. The one way into pending is through the gate; an open hand-over is sticky */
#define ended_by_gate (gate_reason == cancelled -> cancelled : expired)
#define into_pending (gate_is_closed && !without(gate_on_the_way_back) -> ended_by_gate : pending)
#define back(is_sticky) (any_open && is_sticky -> unknown : into_pending)

#ifdef COVER
c_decl { static char taken[256][256][256]; };
#define note() \
    c_code { if (!taken[now.status][now.by][now.to]) { taken[now.status][now.by][now.to] = 1; \
             printf("taken %d %d %d\n", now.status, now.by, now.to); } }
#else
#define note() skip
#endif

/* Every change of the row's status: `by` leads it to `to`. db/delivery_state.py: TRANSITIONS; db/deliveries.py: move */
inline go() {
    d_step {
        note();
        printf("row:     %e -> %e by %e\n", status, to, by);
        guarantee(G8_accepted_has_evidence, status != accepted);  /* nothing leads out of it */
        guarantee(G5_no_unknown_before_the_hand_over, implies(to == unknown, was_handed_over));
        guarantee(G4_open_is_never_forgotten, implies(any_open, to != pending && to != expired && to != cancelled));
        guarantee(G6_dead_is_not_pending, implies(gate_is_closed, to != pending));
        guarantee(G3_budgets_hold, attempt_count <= MAX_ATTEMPTS && lost_count <= MAX_ATTEMPTS);
        status = to;
        to = none; by = none;
        lease_owner = (status == sending -> lease_owner : NOBODY);
        lease_lives = lease_lives && status == sending;
        open_provider = (status == pending || status == expired || status == cancelled -> NOBODY : open_provider);
        /* for the checker's sake: what no later step reads is put to one value, so that runs meet again */
        if
        :: is_terminal ->
            gate_is_closed = true; gate_reason = none; attempt_count = 0; lost_count = 0;
            evidence_window_over = true; key_window_over = true
        :: status == pending -> evidence_window_over = false; key_window_over = false
        :: else
        fi
    }
}

/* deliveries.record_evidence, consume: anything but accepted -> accepted */
inline accept(event, proof) {
    printf("row:     evidence: %e\n", proof);
    by = event;
    to = accepted;
    go()
}

/* deliveries.close_gate, in the transaction that ends the verification: pending ends, sending and unknown keep their state */
inline shut_gate(reason) {
    if
    :: !is_terminal ->
        by = close_gate;
        gate_is_closed = true;
        gate_reason = (gate_reason == none -> reason : gate_reason);
        to = (status == pending -> ended_by_gate : status);
        go()
    :: else
    fi
}

/* deliveries.record_attempt: a final outcome on record stands. `unknown` is `lost` too, `refused` all that closes */
inline record(t, result) {
    d_step {
        if
        :: attempt[t].handed_to != NOBODY && (attempt[t].outcome == none || attempt[t].outcome == unknown) ->
            attempt[t].outcome = (result == accepted -> accepted : (closes(result) -> refused : unknown));
            if
            :: attempt[t].outcome == refused || attempt[t].outcome == accepted && without(accepted_closes_nothing) ->
                open_at[attempt[t].handed_to]--
            :: else
            fi
        :: else  /* nothing was handed over: what became of it decides nothing */
        fi
    }
}

/* leases.claim: pending or unknown -> sending */
#define may_look_up (open_at[KEYED] > 0 && !evidence_window_over)
#define is_claimable \
    (lease_token < LEASES && (_pid == 0 || lease_token > 0) /* the slots differ in nothing but name: 0 begins */ \
     && (status == pending && !gate_is_closed || status == unknown && (may_look_up || replay_is_due)))

inline take_lease() {
    guarantee(G2_one_live_lease, !(status == sending && lease_lives));
    lease_token++;
    token = lease_token;
    printf("worker %d: leases as %d, to %e through provider %d\n", _pid, token, action, at);
    by = claim; to = sending;
    go();
    lease_owner = _pid;
    lease_lives = true
}

/* leases.hand_over, under the row's lock: what it tests, and what it writes */
#define is_mine (lease_owner == _pid && lease_token == token)
#define may_hand_over \
    (status == sending && (is_mine || without(hand_over_is_fenced)) && (lease_lives || without(lock_then_test)) \
     && (without(gate_at_hand_over) || gate_reason == none && (!gate_is_closed || without(lock_then_test))) \
     && (open_provider == NOBODY || open_provider == at || without(replay_stays_with_its_provider)))

#define tests_under_the_lock (!without(lock_then_test) && !without(gate_on_the_row))

inline stamp() {
    d_step {
        printf("worker %d: hand-over of lease %d commits\n", _pid, token);
        guarantee(G2_no_hand_over_without_lease, is_mine && lease_lives);
        guarantee(G6_token_alive_at_hand_over, verification == requested && !gate_is_closed);
        guarantee(G4_no_replay_while_evidence_may_come,
                  implies(open_at[KEYLESS] > 0 && mails[KEYLESS] > 0, evidence_window_over));
        by = hand_over; to = sending;
        note();
        to = none; by = none;
        replay_count = replay_count + (open_provider == NOBODY -> 0 : 1);
        key_window_over = key_window_over && open_provider != NOBODY;
        guarantee(G4_replays_are_bounded,
                  implies(open_provider != NOBODY, replay_count <= (at == KEYED -> UNKNOWN_BUDGET : 1)));
        open_provider = at;
        attempt[token].handed_to = at;
        open_at[at]++;
        handed_to[at] = true;
        evidence_window_over = false;
        lease_lives = true
    }
}

/* The bytes reach the provider, which says something, or nothing that is heard. */
inline write_bytes() {
    printf("worker %d: bytes to provider %d\n", _pid, at);
    guarantee(G5_nothing_sent_before_the_hand_over, attempt[token].handed_to == at);
    guarantee(G4_second_provider_gets_nothing, open_at[1 - at] == 0);
#ifndef PAUSE_AT_THE_WIRE
    guarantee(G2_bytes_only_inside_the_lease,
              (status == sending && is_mine && lease_lives) || status == accepted);  /* accepted: evidence landed meanwhile */
#endif
    if
    :: true ->  /* it takes the mail, or knows its key and answers as it did then */
        if
        :: at == KEYED && mails[KEYED] > 0 && !key_forgotten
        :: else ->
            mails[at]++;
            printf("world:   provider %d takes the mail, number %d\n", at, mails[KEYED] + mails[KEYLESS]);
            guarantee(G4_duplicates_are_recorded, mails[KEYED] + mails[KEYLESS] <= 1 + replay_count);
#ifndef PAUSE_AT_THE_WIRE
            guarantee(G4_key_prevents_duplicates, mails[KEYED] <= 1)
#endif
        fi;
        if
        :: result = accepted
        :: result = unknown
        fi
    :: result = transient
    :: result = permanent
    :: result = refused_us
    :: result = unknown  /* it refused, or the bytes were lost: nobody heard which */
    fi;
    printf("worker %d: hears %e\n", _pid, result);
    fence_runs[_pid] = false
}

/* leases.settle: the attempt, then the row; one transaction */
#define holds \
    (status == sending && (is_mine || without(settle_is_fenced)) \
     && (lease_lives || result == not_sent || without(settle_within_the_lease)))
#define is_late_evidence (result == found || (result == accepted && !holds))
#define in_two_transactions (without(evidence_in_one_transaction) || without(accepted_closes_nothing))

inline settle_attempt() {
    printf("worker %d: settles lease %d as %e\n", _pid, token, result);
    record(token, (result == found -> not_sent : result))
}

inline settle_row() {
    if
    :: is_late_evidence && status != accepted && !without(late_acceptance_counts) ->
        guarantee(G8_accepted_has_evidence, mails[at] > 0);
        accept(evidence, (result == found -> lookup : response))
    :: !is_late_evidence && holds -> settle_as_holder()
    :: else  /* stale: the row has moved on */
    fi;
    guarantee(G8_evidence_is_never_lost, implies(result == accepted || result == found, status == accepted))
}

/* rules.settle */
#define refusal_back back(!without(refusal_closes_its_own))
inline settle_as_holder() {
    guarantee(G2_stale_writers_change_nothing, is_mine && (lease_lives || result == not_sent));
    attempt_count = attempt_count + (action == send && result != refused_us && result != not_sent -> 1 : 0);
    if
    :: result == accepted -> by = settle_accepted; to = accepted
    :: result == unknown -> by = settle_unknown; to = back(!without(open_is_sticky_at_settle))
    :: result == permanent -> by = settle_permanent; to = (refusal_back == unknown -> unknown : failed)
    :: result == transient -> by = settle_transient; to = refusal_back;
        if
        :: to == pending && (attempt_count < MAX_ATTEMPTS || without(attempts_are_counted))
        :: to == pending -> to = failed  /* budget spent, or the next attempt would lie behind the gate */
        :: to != pending
        fi
    :: result == refused_us -> by = settle_refused_us; to = refusal_back
    :: result == not_sent -> by = settle_not_sent;
        to = back(!(action == look_up -> without(not_found_proves_nothing) : without(not_sent_closes_its_own)))
    fi;
    go()
}

/* tasks/delivery.py. Two slots; a crash (goto idle) forgets everything, and the slot comes back under the same name. */
active [WORKERS] proctype worker() {
    byte token, at = NOBODY;
    mtype action = none, result = none;
    bool has_repeated;

idle:
    atomic { token = 0; at = NOBODY; action = none; result = none; has_repeated = false; fence_runs[_pid] = false }
end_free:
    atomic {
        is_claimable ->
        if
        :: status == pending ->
            action = send;
            if  /* the first in MAIL_URL that is not paused: any, for all that a delivery knows */
            :: at = KEYED
            :: at = KEYLESS
            fi
        :: status == unknown && may_look_up -> action = look_up; at = open_provider
        :: status == unknown && replay_is_due ->
            action = replay; at = (without(replay_stays_with_its_provider) -> 1 - open_provider : open_provider)
        fi;
        if
        :: without(claim_locks_the_row) -> printf("worker %d: selects the row\n", _pid); goto picked
        :: else
        fi;
taking: take_lease()
    };

leased:
    if
    :: atomic { action == look_up && mails[at] > 0 -> result = found; goto settling_now }
    :: atomic { action == look_up -> result = not_sent; goto settling_now }  /* not there, or not yet in its index */
    :: atomic { action != look_up ->  /* what can be known before the hand-over */
        if
        :: result = transient
        :: result = permanent
        :: result = refused_us
        :: result = not_sent
        fi;
        goto settling_now }
    :: atomic { action != look_up && !without(hand_over_commits_first) ->
        fence_runs[_pid] = !without(local_fence) && !without(fence_counts_from_before);
        if
        :: (without(lock_then_test) && lease_lives && !gate_is_closed) ||
           (without(gate_on_the_row) && verification == requested) ->
            printf("worker %d: has tested, and waits for the row\n", _pid);
            goto waiting
        :: tests_under_the_lock -> goto handing_over
        :: tests_under_the_lock -> fence_runs[_pid] = false; result = not_sent; goto unanswered
        fi }
    :: atomic { action != look_up && without(hand_over_commits_first) -> goto writing }
    :: goto idle
    fi;

unanswered:  /* it commits late, or never; the worker knows only that it has sent nothing */
    if
    :: atomic { !without(hand_over_unanswered_sends_nothing) -> goto settling_now }
    :: atomic { without(hand_over_unanswered_sends_nothing) -> goto writing }
    :: atomic { may_hand_over -> goto handing_over }
    :: goto idle
    fi;

handing_over_late:
    atomic {
        true ->
handing_over:
        if
        :: may_hand_over ->
            stamp();
            if
            :: result == none -> goto stamped
            :: else -> goto settling
            fi
        :: else ->
            fence_runs[_pid] = false;
            result = (result == none -> not_sent : result);
            goto settling_now
        fi
    };

stamped:
    if
    :: without(fence_counts_from_before) && !fence_runs[_pid] -> fence_runs[_pid] = true; goto stamped
#ifdef PAUSE_AT_THE_WIRE
    :: fence_runs[_pid] -> goto wire
#else
    :: atomic { fence_runs[_pid] || without(local_fence) -> goto writing }
#endif
    :: atomic { !fence_runs[_pid] && !without(local_fence) -> result = not_sent; goto settling_now }
    :: atomic { result = transient; fence_runs[_pid] = false; goto settling_now }  /* the connection is gone */
    :: goto idle
    fi;

wire:
    if
    :: atomic { true ->
writing: write_bytes() }
    :: goto idle
    fi;
    if
    :: without(hand_over_commits_first) && attempt[token].handed_to == NOBODY -> goto handing_over_late
    :: else
    fi;

settling:
    if
    :: atomic { true ->
settling_now:
        settle_attempt();
        if
        :: in_two_transactions -> goto half_settled
        :: else
        fi;
moving: settle_row() }
    :: goto idle
    fi;
    if
#ifdef SETTLE_AGAIN
    :: !has_repeated -> has_repeated = true; goto settling
#endif
    :: goto idle
    fi;

picked:  /* only in a broken variant: SELECT, then UPDATE */
    atomic { lease_token < LEASES -> goto taking };
waiting:  /* only in broken variants: what was tested is old by the time that the lock is granted */
    atomic { true -> goto handing_over };
half_settled:  /* only in a broken variant */
    if
    :: atomic { true -> goto moving }
    :: goto idle
    fi
}

/* tasks/sweep.py, and the start of each drain: db/overdue.py */
#define is_lost \
    (status == sending && (!lease_lives || without(reclaim_waits_for_the_lease)) && !without(lost_leases_are_reclaimed))
#define is_overdue (status == pending && gate_is_closed && !without(overdue_pending_ends))
#define is_answered_late (status == unknown && !any_open && !without(late_refusal_frees_unknown))
#define is_unresolved \
    (status == unknown && any_open && evidence_window_over && !may_replay && !without(unresolved_unknown_ends))

active proctype sweep() {
end:
    do
    :: atomic {  /* overdue.reclaim_lost, rules.reclaim */
        is_lost ->
        printf("sweep:   lease %d is lost\n", lease_token);
        if
        :: attempt[lease_token].outcome == none -> record(lease_token, unknown)
        :: else  /* a result that came between the lease's end and this reclaim stands */
        fi;
        lost_count++;
        by = reclaim;
        if
        :: lost_count >= MAX_ATTEMPTS && !without(lost_leases_are_counted) -> to = failed
        :: else -> to = (without(crash_before_it_is_no_unknown) -> unknown : back(!without(open_is_sticky_at_reclaim)))
        fi;
        go() }
    :: atomic { is_overdue -> by = end_overdue; to = expired; go() }  /* overdue.end_overdue_pending */
    :: atomic { is_answered_late -> by = end_overdue; to = back(true); go() }  /* overdue.return_answered_late */
    :: atomic { is_unresolved -> by = end_overdue; to = failed; go() }  /* overdue.end_overdue_unknown */
    od
}

/* provider_events.record: webhooks, true or false, as long as the provider can have the mail at all */
#define may_come_from(p) \
    (status != accepted && (handed_to[p] || without(evidence_needs_a_hand_over)) && !without(evidence_locks_the_row))

inline webhook_of(p) {
    printf("world:   a webhook of provider %d\n", p);
    guarantee(G8_accepted_has_evidence, handed_to[p]);
    accept(evidence, webhook)
}

inline shut_gate_unless(is_broken, reason) {
    if
    :: (is_broken || without(gate_on_the_row)) && status != pending
    :: else -> shut_gate(reason)
    fi
}

/* Time passes, in any order but this: the local fence is down before the lease ends that its hand-over renewed. */
#define lease_may_end \
    (status == sending && lease_lives && !(attempt[lease_token].handed_to != NOBODY && fence_runs[lease_owner]))
#define gate_may_close (!is_terminal && !gate_is_closed)
#define evidence_window_may_end (!is_terminal && any_open && !evidence_window_over)
#define key_window_may_end (!is_terminal && open_at[KEYED] > 0 && !key_window_over)

active proctype clock() {
end:
    do
    :: d_step { fence_runs[0] -> fence_runs[0] = false; printf("clock:   the fence of worker 0 is down\n") }
    :: d_step { fence_runs[1] -> fence_runs[1] = false; printf("clock:   the fence of worker 1 is down\n") }
    :: d_step { lease_may_end -> lease_lives = false; printf("clock:   lease %d ends\n", lease_token) }
    :: d_step { gate_may_close -> gate_is_closed = true; printf("clock:   the gate closes\n") }
    :: d_step { evidence_window_may_end -> evidence_window_over = true; printf("clock:   the evidence window ends\n") }
    :: d_step { key_window_may_end -> key_window_over = true; printf("clock:   the key window ends\n") }
    :: d_step {  /* the provider keeps a key for longer than we rely on it, by more than a lease */
        !is_terminal && mails[KEYED] > 0 && key_window_over && !key_forgotten &&
        status != sending && !fence_runs[0] && !fence_runs[1] ->
        key_forgotten = true; printf("clock:   provider 0 forgets the key\n") }
    od
}

/* Whatever comes from outside, in any order, at any time or never. */
active proctype world() {
    byte have_read;             /* only in a broken variant: how many have read that the token is good */
    mtype read_status = none;   /* only in a broken variant: the state that a webhook found */
end:
    do
    :: atomic { may_come_from(KEYED) -> webhook_of(KEYED) }
    :: atomic { may_come_from(KEYLESS) -> webhook_of(KEYLESS) }
    :: atomic {
        without(evidence_locks_the_row) && status != accepted && was_handed_over && read_status == none ->
        read_status = status; printf("world:   a webhook reads %e\n", status) }
    :: atomic {
        read_status != none ->
        if
        :: status == read_status -> accept(evidence, webhook)
        :: else
        fi;
        read_status = none;
        guarantee(G8_evidence_is_never_lost, status == accepted) }
    :: atomic {  /* consumption.consume, deliveries.consume: the recipient, or whoever knows the token */
        (have_read > 0 || verification == requested && !without(consume_is_conditional)) ->
        printf("world:   the token is consumed\n");
        guarantee(G7_consumed_once, verification != consumed);
        verification = consumed;
        have_read = (have_read > 0 -> have_read - 1 : 0);
        if
        :: was_handed_over && status != accepted -> accept(evidence, consumed)
        :: was_handed_over && status == accepted
        :: else -> shut_gate_unless(without(consume_closes_the_gate), consumed)
        fi }
    :: d_step { without(consume_is_conditional) && verification == requested && have_read < 2 -> have_read++ }
    :: atomic {  /* endings.supersede */
        verification == requested && !is_terminal ->
        verification = ended; printf("world:   superseded\n");
        shut_gate_unless(without(supersede_closes_the_gate), superseded) }
    :: atomic {  /* endings.cancel_requested */
        verification == requested && !is_terminal ->
        verification = ended; printf("world:   cancelled\n");
        shut_gate_unless(without(cancel_closes_the_gate), cancelled) }
    od
}

/*
 * G3. Whatever workers and world do or leave undone, time and the sweep alone bring a delivery that has not ended one step
 * further. No run goes in circles (checked apart: README.md), so each reaches a terminal state.
 */
#define time_or_sweep_goes_on \
    (fence_runs[0] || fence_runs[1] || lease_may_end || gate_may_close || evidence_window_may_end || key_window_may_end \
     || is_lost || is_overdue || is_answered_late || is_unresolved)
#define evidence_is_lost (an_attempt_was(accepted) && status != accepted)

active proctype watch() {
end:
    atomic {
        !(is_terminal || time_or_sweep_goes_on) || evidence_is_lost ->
        guarantee(G3_every_run_ends, is_terminal || time_or_sweep_goes_on);
        guarantee(G8_evidence_is_never_lost, !evidence_is_lost) }
}
