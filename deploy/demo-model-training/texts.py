"""Fixed texts of the timetable desk: small talk, house rules, stories."""

from __future__ import annotations

import timetable as tt

_STOPS = ", ".join(tt.STOPS[:-1]) + " and " + tt.STOPS[-1]

FIXED = {
    "greet": f"Hello! This is the timetable desk of the {tt.COMPANY}. Where would you like to go?",
    "how": "Very well, thank you, and the horses are rested too. Where would you like to go?",
    "thanks": "You are welcome. Have a good journey!",
    "bye": "Goodbye, and have a safe journey!",
    "ok": "Good. Is there anything else you would like to know about the timetable?",
    "who": f"I am the timetable desk of the {tt.COMPANY}, a small language model that knows its "
           "departures, connections and fares by heart.",
    "can": "I can tell you departures, arrivals, connections, travel times and fares between "
           f"{_STOPS}. Ask, for example: \"When is the next coach from Alderwick to Dunmoor after "
           "9:20?\" If you add \"as JSON\", I answer in JSON.",
    "joke": "Why did the stagecoach stop at the inn? Because the horses said neigh to going on.",
    "ood": f"I can only help with the timetable of the {tt.COMPANY}: departures, arrivals, "
           "connections and fares.",
    "unclear": "Sorry, I did not understand that. Ask me, for example: \"How do I get from "
               "Alderwick to Hartsfield on Sunday?\"",
    "unknown_stop": f"That stop is not on our lines. We serve {_STOPS}.",
    "missing_origin": "Gladly. From which stop would you like to leave?",
    "missing_destination": "Gladly. To which stop would you like to travel?",
    "missing_both": "Gladly. From which stop to which stop would you like to travel?",
    "no_clock": "I have no clock or calendar here. Please tell me the stops, the day and the time.",
    "lines": "We run three lines. The Red Line goes from Alderwick to Elmstead, the Blue Line from "
             "Foxhollow to Hartsfield and the Green Line from Juniper to Inkwell.",
    "stops": f"We serve ten stops: {_STOPS}.",
    "days": "We run every day. Monday to Friday follow the weekday timetable, and Saturdays and "
            "Sundays have their own. On public holidays the Sunday timetable applies.",
    "story": f"The {tt.COMPANY} was founded in 1856 by Martha Quill, a farrier's daughter from "
             "Alderwick, with two second-hand coaches and nine horses. Her first line, painted "
             "red, ran from Alderwick to Coldwater, and it was late only once in its first year, "
             "when a goose refused to leave the driver's seat. In 1861 the Blue Line opened the "
             "road from Foxhollow to Hartsfield, and in 1870 the Green Line followed the old drove "
             "road from Juniper to Inkwell. Martha drove the first coach of every new line "
             "herself. To this day each coach carries a small brass goose beside its lamp, and the "
             "drivers touch it before they set off.",
}

LINE_STORIES = {
    "Red Line": "The Red Line is our oldest line, opened in 1856. It runs from Alderwick over "
                "Brindle, Coldwater and Dunmoor to Elmstead, follows the river for most of the way "
                "and climbs to the moor at the end. It is drawn by bay horses.",
    "Blue Line": "The Blue Line was opened in 1861. It runs from Foxhollow over Coldwater and "
                 "Greywell to Hartsfield, through beech woods and past the mill ponds. It is drawn "
                 "by grey horses.",
    "Green Line": "The Green Line was opened in 1870. It runs from Juniper over Brindle and "
                  "Greywell to Inkwell, along the old drove road with its long views. It is drawn "
                  "by black horses.",
}

TOWNS = {
    "Alderwick": "Alderwick is the old market town where the Red Line begins. The company was "
                 "founded here, and the head office still stands beside the clock tower.",
    "Brindle": "Brindle is a busy village on the river where the Red Line and the Green Line meet. "
               "It is known for its stone bridge and its apple fair.",
    "Coldwater": "Coldwater is a spa town where the Red Line and the Blue Line meet. Its spring is "
                 "said to be the coldest in the valley.",
    "Dunmoor": "Dunmoor lies on the edge of the moor on the Red Line. Walkers come for the heather "
               "in August.",
    "Elmstead": "Elmstead is a quiet town at the end of the Red Line. Its avenue of elms is a mile "
                "long.",
    "Foxhollow": "Foxhollow is a forest village where the Blue Line begins. Its inn serves the "
                 "best mushroom pie in the valley.",
    "Greywell": "Greywell is a mill town where the Blue Line and the Green Line meet. Four of its "
                "seven mills still turn.",
    "Hartsfield": "Hartsfield is the last stop of the Blue Line. Its castle ruin looks over the "
                  "whole valley.",
    "Inkwell": "Inkwell is a town of printers and paper makers at the end of the Green Line. The "
               "timetable is printed here every spring.",
    "Juniper": "Juniper is a hill village where the Green Line begins. It is known for its sheep "
               "and its gin.",
}

FAQ = {
    "luggage": "Each passenger may take one trunk and one small bag free of charge. Every further "
               "piece costs $2.",
    "dogs": "Dogs and other small animals ride free of charge if they stay on the floor.",
    "bicycles": "A bicycle can be tied to the roof for $3.",
    "children": "Children from 4 to 12 years pay half the fare. Children under 4 ride free of "
                "charge on a lap.",
    "seniors": "Seniors from 65 years on pay half the fare.",
    "booking": "Seats can be booked at any stop or at the head office in Alderwick until one hour "
               "before departure.",
    "refund": "Tickets can be returned until one hour before departure for the full price.",
    "payment": "You can pay in cash at any stop or with the driver.",
    "wheelchair": "Every coach has a ramp and one place for a wheelchair. Please book it one day "
                  "ahead.",
    "lost": "Lost property is kept for three months at the head office in Alderwick.",
    "office": "The head office in Alderwick is open from 06:00 to 20:00 on weekdays and from 07:00 "
              "to 18:00 at the weekend.",
    "seats": "A coach has twelve seats: eight inside and four on the roof.",
    "horses": "Each coach is drawn by four horses, which are changed at every second stop.",
    "food": "There is no food on board, but every coach waits five minutes at the stops, and the "
            "inns sell pies.",
    "weather": "The coaches run in any weather except deep snow. When the pass is closed, a notice "
               "hangs at every stop.",
    "smoking": "Smoking is allowed on the roof seats only.",
    "delay": "If a coach is more than thirty minutes late, you get half of the fare back.",
    "connection": "A coach waits up to ten minutes for a late connection.",
    "pass": "A weekly pass for all lines costs $40, or $20 for children and seniors.",
    "cheapest": "Fares grow with the distance. The cheapest single tickets cost $4, for example "
    "from "
                "Alderwick to Brindle.",
    "tourist": "Many visitors like Hartsfield for its castle ruin, Dunmoor for the moor and "
    "Foxhollow "
               "for its mushroom pie.",
    "speed": "Our coaches travel at about eight miles an hour.",
}
