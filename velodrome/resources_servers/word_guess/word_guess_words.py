"""A small list of common English words of five letters, from which secrets and reference guesses come."""

from __future__ import annotations

_TEXT = """
    about above acorn actor admit adult after again agent agree alarm album alive allow alone among anger angle ankle
    apple apron arena argue arise arrow aside asset audio award bacon badge baker basic beach beard begin below bench
    birth black blade blame blank blaze blend block bloom board boast bonus brain brave bread break brick bride brief
    bring broad broom brown brush build bunch cabin cable camel candy cargo carve catch cause chain chair chalk charm
    chase cheap check cheek chess chest chief child chill choir chord civil claim clash class clean clear clerk cliff
    climb clock cloth cloud coach coast count court cover crack craft crane crash cream creek crime crisp crowd crown
    cruel crust curve cycle dairy daily dance debut delay depth diary dirty donor doubt dozen draft drain drama dream
    dress drift drink drive eager eagle early earth eight elbow empty enemy enjoy enter equal error essay event every
    exact extra fable faith false fancy fault favor feast fence fever field fifth fight final flame flash fleet float
    flock flood floor flour fluid focus force forge forty found frame fresh front frost fruit funny ghost giant given
    glass globe glory glove grace grade grain grand grape graph grass great green greet grief group guard guess guest
    guide habit happy harsh heart heavy hello honey honor horse hotel house human humor ideal image index inner input
    ivory jewel joint judge juice knife knock label labor large laser later laugh layer learn leave lemon level light
    limit local logic loose lucky lunch magic major maker maple march match mayor medal metal minor model money month
    moral motor mount mouse mouth movie music nerve never night noble noise north novel nurse ocean offer often olive
    onion opera orbit order other paint panel paper party patch pause peace pearl phone photo piano piece pilot pitch
    place plain plane plant plate point porch pound power press price pride prize proof proud pupil queen quick quiet
    quilt quote radio raise ranch rapid reach ready right river roast robot rough round route royal rural salad sauce
    scale scarf scene scent scout serve seven shade shake shape share sharp sheep shelf shell shift shine shirt shore
    short shout skill slate sleep slice slide small smart smell smile smoke snake solid solve sound south space spare
    speak speed spice spoon sport staff stage stair stamp stand start state steam steel steep stick still stone store
    storm story stove sugar sunny sweet swing sword table taste teach thank theme thick thief thing think third three
    throw tiger tight title toast today topic total touch tower trace track trade trail train treat trend trial tribe
    trick truck trust truth uncle under union unite upper urban usual valid value video visit vital voice wagon waste
    watch water weigh whale wheat wheel white whole witch woman world worry wound wrist write wrong young youth zebra
"""
WORDS = tuple(_TEXT.split())
