"""How visitors ask: wordings as small grammars, one list per task.

`{a|b|}` chooses one alternative and may be nested; `<from>`, `<to>`, `<day>`, `<time>`, `<group>`,
`<line>`, `<line2>` and `<topic>` are slots that conversation.py fills. `<day>` may be empty.
"""

from __future__ import annotations

_COACH = "{coach|coach|stagecoach|stage|bus|carriage|ride|one}"
_COACHES = "{coaches|coaches|stagecoaches|stages|buses|connections|rides|departures}"
_PAIR = "{from <from> to <to>|from <from> to <to>|to <to> from <from>|between <from> and <to>}"
_FT = "{from <from> to <to>|from <from> to <to>|to <to> from <from>|<from> to <to>}"
_GO = "{go|travel|get|ride|go|journey}"
_WANT = "{I want to|I need to|I'd like to|I would like to|we want to|I have to|we need to|I wanna}"
_HOWMUCH = "{how much is|what is|what's|how much does it cost for|what does it cost for|" \
           "tell me the price of|price of|how expensive is|give me}"
_CAN = "{can you tell me|could you tell me|tell me|please tell me|do you know|I'd like to know|" \
       "I want to know|show me|give me|}"

QUESTIONS: dict[str, list[str]] = {
    "departures": [
        "{when|at what times|at what time|what times} {do|does|can} {the |}" + _COACHES
        + " {leave|depart|go|run|start} " + _PAIR + "<day>?",
        "{when|at what time|what time} does {the|a} " + _COACH
        + " {leave|depart|go|run} {<from> for <to>|from <from> to <to>|from <from> for <to>}<day>?",
        "{when|at what times} {do|does} {the |}{coach|coaches} leave <from> for <to><day>?",
        "{when|at what time} can I {go|travel|leave|get a coach|catch a coach} " + _FT + "<day>?",
        _CAN + " {the |}{departures|departure times|times|timetable|schedule|coach times|all "
        "coaches"
        "|all departures} " + _PAIR + "<day>",
        "{what are|show|list|list all|give me} {the |}{departures|departure times|times|coaches|"
        "connections} " + _PAIR + "<day>{?| please|}",
        "{which|what} " + _COACHES + " {are there|do you have|run|go|can I take} " + _PAIR
        + "<day>?",
        "{timetable|schedule|departures|times|coaches|departure times} " + _FT + "<day>",
        "<from> to <to><day>", "<from> <to><day>", "<from> - <to><day>", "<from> -> <to><day>",
        _WANT + " " + _GO + " " + _FT + "<day>{. {When does it leave|What are the times|When can I "
        "go|Which coaches are there|When are the coaches}?|, when {does it leave|can I go|are "
        "there "
        "coaches}?|, what are my options?|}",
        "I am in <from>{.| and| now and} " + _WANT + " {go|get} to <to><day>. {When|What time} "
        "{does the coach leave|can I leave|do coaches leave|are there coaches}?",
    ],
    "first": [
        "{when|what time|at what time} {is|leaves|does|goes} the {first|earliest} " + _COACH + " "
        + _FT + "<day>{ leave|}?",
        "{what is|what's|which is|tell me|give me|show me} the {first|earliest} " + _COACH + " "
        + _PAIR + "<day>?",
        "{first|earliest} " + _COACH + " " + _FT + "<day>{?|}",
        "how early can I {leave|go|travel|get away} " + _FT + "<day>?",
        _WANT + " {leave|go|travel} as early as possible " + _FT + "<day>",
    ],
    "last": [
        "{when|what time|at what time} {is|leaves|does|goes} the {last|latest|final} " + _COACH
        + " " + _FT + "<day>{ leave|}?",
        "{what is|what's|which is|tell me|give me|show me} the {last|latest|final} " + _COACH + " "
        + _PAIR + "<day>?",
        "{last|latest|final} " + _COACH + " " + _FT + "<day>{?|}",
        "how late can I {leave|go|travel|get back} " + _FT + "<day>?",
        _WANT + " {leave|go|travel} as late as possible " + _FT + "<day>",
    ],
    "next": [
        "{when|what time|at what time} {is|does|leaves|goes} the next " + _COACH + " " + _FT
        + "<day> {after|from|past} <time>{ on|}?",
        "{what is|what's|which is|tell me|give me} the {next|first} " + _COACH + " " + _PAIR
        + " {after|past} <time><day>?",
        "next " + _COACH + " " + _FT + "<day> after <time>{?|}",
        "{after <time>|<time>,|it is <time>, next coach|past <time>,} <from> to <to><day>",
        "{it's|it is|it's now|it is now} <time><day>{.|,| and I am in <from>.} {When|What time} "
        "{is|does} the next " + _COACH + " {go |leave |}" + _FT + "?",
        "I{'m| am} in <from> at <time><day>{.|,} {when|what time} {is|does|leaves} the next "
        + _COACH + " {to <to>|go to <to>|leave for <to>}?",
        _WANT + " {leave|go|travel} " + _FT + " after <time><day>{. When is the next coach?|. "
        "Which "
        "coach can I take?|, what is the next coach?|}",
        "{how do I|how can I} get " + _FT + " after <time><day>?",
        "{are there any|is there any|is there a|any} {coach|coaches} " + _FT
        + " after <time><day>?",
        "is there {a coach|anything|something} " + _FT + " {after|later than} <time><day>?",
        "I {arrive in|get to|will be in|reach} <from> at <time><day>. {When can I go on to <to>|"
        "When is the next coach to <to>|What is the next coach to <to>}?",
        "<from> to <to><day> after <time>", "<from> <to> <time><day>",
    ],
    "by": [
        _WANT + " {be in|get to|arrive in|reach} <to> {by|before|at|at the latest by|no later "
        "than} "
        "<time><day>{. {Which|What} coach {should|must|can} I take from <from>?|, {coming|"
        "starting|leaving} from <from>.|. I start {in|from} <from>.|. When do I have to leave "
        "<from>?}",
        "{which|what} {coach|one} {should|do|must|can} I take from <from> to {be in|arrive in|reach"
        "|get to} <to> by <time><day>?",
        "{when|what time|at what time} {do I have to|must I|should I|do I need to} leave <from> to "
        "{be in|arrive in|reach|get to} <to> {by|before} <time><day>?",
        "how {do|can} I {get|go} " + _FT + " by <time><day>?",
        "from <from>, I {must|need to|have to} be {in|at} <to> {by|at} <time><day>",
        _WANT + " be {in|at} <to> {by|at} <time><day>, {starting|leaving} {in|from|at} <from>",
        "<from> to <to><day>, {arriving|arrive|arrival|be there} by <time>",
        "latest coach from <from> that {arrives in|reaches|gets to} <to> by <time><day>?",
    ],
    "arrival": [
        "{when|what time|at what time} does the <time> {coach |}from <from> {arrive in|reach|get to"
        "|arrive at|get into|come to} <to><day>?",
        "{when|what time} {will|do|would} I {arrive in|reach|get to|be in} <to> {if I take|with|"
        "on} "
        "the <time> {coach |}from <from><day>?",
        "if I {leave|take the coach in|start from} <from> at <time><day>, when {do|will} I {arrive "
        "in|reach|be in|get to} <to>?",
        "the <time> from <from> to <to><day>, when does it {arrive|get there|get in}?",
        "{arrival time|arrival|when is the arrival} of the <time> {coach |}from <from> {in|to} <to>"
        "<day>{?|}",
        "when does the coach that leaves <from> at <time><day> {get to|arrive in|reach} <to>?",
    ],
    "check": [
        "{is there|do you have|have you got} a " + _COACH + " " + _FT + " at <time><day>?",
        "{does|is} {a|the|any} " + _COACH + " {leave|leaving|go|going} " + _FT + " at <time><day>?",
        "can I {leave|go|travel} " + _FT + " at <time><day>?",
        "does {a|the} coach leave <from> for <to> at <time><day>?",
        "is {it true that |}there {really |}a coach at <time> " + _FT + "<day>?",
    ],
    "count": [
        "how many " + _COACHES + " {are there|run|go|leave|do you have} " + _PAIR
        + "<day>{| every day| a day| per day}?",
        "how often {does|do} the {coach|coaches} {go|run|leave} " + _PAIR + "<day>?",
        "{number of|how many} {coaches|connections} " + _FT + "<day>{?|}",
        "how often can I {go|travel} " + _FT + "<day>?",
    ],
    "duration": [
        "how long {does it take|do I need|is the journey|is the trip|is the ride|does the journey "
        "take|does the trip take|does the coach take|do I travel|will it take|are we on the road} "
        + _PAIR + "?",
        "how long does it take to " + _GO + " " + _FT + "?",
        "{what is|what's|tell me|give me} the {travel time|journey time|duration|length of the "
        "journey|riding time} " + _PAIR + "?",
        "{travel time|duration|journey time|how long} " + _FT + "{?|}",
        "how {many hours|much time|many minutes} {is it|does it take|do I need} " + _PAIR + "?",
        "{what is|what's|tell me|show me} the {fastest|quickest|shortest} {way|coach|connection|"
        "route|journey} " + _PAIR + "?",
        "how {fast|quickly} can I get " + _FT + "?",
        "how far is it " + _PAIR + "?", "how far is <to> from <from>?",
    ],
    "route": [
        "how {do|can} I {get|go|travel|come} " + _FT + "?",
        "{which|what} line {goes|runs|do I take|should I take|takes me|is it} " + _PAIR + "?",
        "where do I {have to |need to |}change {when I go |on the way |if I travel |}" + _FT + "?",
        "do I have to change {coaches |}" + _PAIR + "?",
        "is there a direct {coach|line|connection} " + _PAIR + "?",
        "is {it|the coach|the connection} direct " + _PAIR + "?",
        "{what is|what's|tell me|show me} the {best |}{way|route|connection} " + _PAIR + "?",
        "{route|connection|way|line} " + _FT + "{?|}",
        "can I {get|go|travel} " + _FT + "?", "do you {go|run} " + _FT + "?",
        "is there a " + _COACH + " " + _FT + "?",
    ],
    "fare": [
        _HOWMUCH + " {a|the|one|a single} {ticket|fare|ticket|seat|single} " + _FT + "?",
        "{how much|what} does {it|a ticket|the coach|a seat|the trip|the journey|a single ticket} "
        "cost " + _FT + "?",
        "{what's|what is} the {fare|price|ticket price|cost} " + _FT + "?",
        "{what's|what is} the {fare|price} for {a child|children|an adult|one adult|a senior|one "
        "person|kids} " + _FT + "?",
        "how much {do I pay|must I pay|is it|would it be|will it be|do you charge|does a child pay|"
        "is it for a child|for one adult} " + _FT + "?",
        "{fare|price|ticket|cost|ticket price|fares|prices|how much} " + _FT + "{?|}",
        _WANT + " {buy a ticket|go|travel} " + _FT + ". {How much is it|What does it cost|How much "
        "do I pay|What is the fare}?",
        "is it expensive to {go|travel} " + _FT + "?",
        "<from> <to> {fare|price|cost}",
    ],
    "return": [
        _HOWMUCH + " {a|the} {return|return ticket|round trip|return fare|round trip ticket} " + _FT
        + "?",
        "{how much|what} does a {return|return ticket|round trip} cost " + _FT + "?",
        "{how much|what} {is it|does it cost} {to go |}" + _FT + " and back?",
        "{what's|what is} the {return fare|return price|price of a return ticket|fare for a return}"
        " " + _FT + "?",
        "{return|return ticket|return fare|round trip} " + _FT + "{?|}",
        "{fare|price|ticket} " + _FT + " and {back|return}{?|}",
    ],
    "group": [
        "{how much|what} {is it|does it cost|do we pay|is the fare|would it be|will it cost|are "
        "the "
        "tickets|do tickets cost} for <group> " + _FT + "?",
        "{how much|what} {is it|does it cost|do we pay|is the fare} " + _FT + " for <group>?",
        "{what's|what is} the {total|total fare|fare|price} {for <group> |}" + _FT
        + " for <group>?",
        "{price|fare|tickets|total|ticket|cost|total fare} " + _FT + " for <group>{?|}",
        "<group> " + _FT + "{, how much is that?|, what does it cost?|?| - price?|, total fare?|}",
        "we are <group> {and want to|and would like to|going to|and we} {go|travel} " + _FT
        + ". {How much is it|What do we pay|How much do we pay in all|What is the total}?",
        "{I need|I'd like|can I have|please book} {tickets|seats} for <group> " + _FT
        + "{. How much is that?|, what is the price?|. What do I pay?|, how much?}",
        "how much {do|would|will} <group> pay " + _FT + "?",
        "add up the fares for <group> " + _FT,
    ],
    "group_return": [
        "{how much|what} {is it|does it cost|do we pay|is the fare|is a return|is the round trip} "
        "for <group> " + _FT + " and back?",
        "{return|return tickets|round trip|return fare} " + _FT + " for <group>{?|}",
        "{how much|what} {are|do} return tickets {cost |}" + _FT + " for <group>?",
        "<group> " + _FT + " and back{, how much is that?|?|, total fare?|}",
        "we are <group> and {want|need} return tickets " + _FT + ". {How much is it|What is the "
        "total}?",
    ],
    "board": [
        "{which|what} " + _COACHES + " {leave|depart|go|run} from <from><day>?",
        "{show|show me|give me|what is|list} {the |}{departure board|all departures|departures|"
        "timetable|board|coaches} {of|at|in|for|from} <from><day>",
        "{when do coaches leave|when can I leave|where can I go} from <from><day>?",
        "{departures|departure board|timetable|board|all coaches} {from |at |of |}<from><day>",
        "everything that leaves {from |}<from><day>",
    ],
    "line_times": [
        "{show|show me|list|give me|print|what is|tell me|can I see|I want to see|can you show me} "
        "{the |}{whole |full |complete |entire |}{timetable|schedule|plan} {of|for} the "
        "<line><day>",
        "{timetable|schedule|full timetable|whole timetable} {of |for |}{the |}<line><day>",
        "{the |}<line> {timetable|schedule|times}<day>{| please}",
        "when does the <line> {run|go|leave}<day>?", "what are the times of the <line><day>?",
        "list all {coaches|departures|trips} of the <line><day>",
    ],
    "line_times_towards": [
        "{show me|list|give me|print|what is} {the |}{whole |full |}{timetable|schedule} {of|for} "
        "the <line> {to|towards|in the direction of} <to><day>",
        "{timetable|schedule} {of the |}<line> {to|towards} <to><day>",
        "<line> {to|towards} <to><day>",
        "when does the <line> {run|go} {to|towards} <to><day>?",
    ],
    "stops_of": [
        "{where|at which stops|at which places|at what towns} does the <line> {stop|go|run|call}?",
        "{which|what} {stops|towns|villages|stations|places} {are on|does|are served by} the <line>"
        "{ serve| have|}?",
        "{stops|towns|stations|route} {of|on} the <line>{?|}",
        "{list|show|name|give me|tell me} {the |all |all the |}{stops|towns} {of|on|along} the "
        "<line>", "where does the <line> go{ to|}?",
    ],
    "lines_at": [
        "{which|what} {line|lines} {stop|stops|call|run|runs|go|goes} {at|in|to|through} <from>?",
        "{which|what} {line|lines} {is|are} <from> on?", "{which|what} line serves <from>?",
        "{on which line is|what lines serve|who serves|which lines go to} <from>?",
        "do you {stop at|go to|serve} <from>?", "is <from> on {a|one of your|the} {line|lines|"
        "network}?", "{line|lines} {at|for} <from>{?|}",
    ],
    "change_between": [
        "where {do|can} I change {between|from} the <line> {and|to} the <line2>?",
        "where do the <line> and the <line2> {meet|cross|connect}?",
        "{at which stop|in which town} {do|can} {I change|you change|I switch} from the <line> to "
        "the <line2>?", "how do I get from the <line> to the <line2>?",
        "change from {the |}<line> to {the |}<line2>{?|}",
    ],
    "town": [
        "{tell me|what can you tell me|what do you know|say something|something|tell me more} "
        "about "
        "<from>{?|}", "what is <from>{ like| known for| famous for|}?", "what's {in|at} <from>?",
        "what {is there|can I do|can I see|is there to see} in <from>?", "where is <from>?",
        "is <from> {nice|pretty|worth a visit|interesting}?", "describe <from>{ to me|}",
    ],
    "line_story": [
        "{tell me|what can you tell me|what do you know|say something|tell me more} about the "
        "<line>"
        "{?|}", "when was the <line> {opened|founded|built}?",
        "{what is|what's|describe} the <line>{ like|}?", "the {story|history} of the <line>",
        "tell me the {story|history} of the <line>", "how old is the <line>?",
    ],
    "same": [
        "{when|what time} {is|does|leaves} the {next |}" + _COACH
        + " from <from> to <from><day>{ leave|}?", "how much is {it|a ticket} from <from> to "
            "<from>?",
        "how do I get from <from> to <from>?", "<from> to <from><day>",
        "how long does it take from <from> to <from>?",
    ],
    "missing_origin": [
        "{when|what time} {is|does|goes} the {next |first |last |}" + _COACH + " to <to><day>{ "
        "leave|}?",
        "how much is {it|a ticket|the fare} to <to>?", "how do I get to <to>{<day>|}?",
        _WANT + " {go|travel|get} to <to><day>", "{a |one |}ticket to <to>{ please|}",
        "{coach|coaches|departures} to <to><day>{?|}", "how long does it take to {get to |}<to>?",
    ],
    "missing_destination": [
        "I am in <from>", "I {start|leave|am leaving|depart} {from|in} <from><day>",
        "how much is a ticket from <from>?", "{I'm|we're|we are} {travelling|going|leaving} from "
        "<from><day>", "from <from>", "a ticket from <from>{ please|}",
    ],
    "missing_both": [
        "how much is a ticket?", "{what|how much} does {a ticket|it} cost?", "I {need|want|would "
        "like"
        "|'d like} {a ticket|to travel|to book a ticket|to go somewhere|a coach|to take the coach}",
        "{when|what time} {is|does|leaves} the {first|last} coach{ leave|<day>|}?",
        "{what are|tell me|show me} the {fares|prices|departures|times|connections}",
        "{what time does|when does} {it|the coach|the stagecoach} {leave|arrive|go}?",
        "{how long|how much time} does {it|the journey|the trip} take?",
        "{fares|prices|tickets|departures|timetable|the timetable|connections}{?| please}",
        "two tickets please", "can {I|you} book a {trip|journey}{ for me|}?", "how much?", "when?",
        "{I'd like to|can you help me} plan a {trip|journey}{?|}", "{can|could} you help me{ "
        "please|}?",
    ],
    "no_clock": [
        "{what time is it|what's the time|what day is it|what is the date|what is today's date|"
        "what day is today|what is the time}{ now| today|}?", "when is the next {coach|stagecoach|"
        "one|bus}{ leaving|}?", "what leaves now?", "do you know what time it is?",
        "is today a {holiday|weekday|Sunday|Saturday}?", "which coach leaves next?",
    ],
}
